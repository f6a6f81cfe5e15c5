"""Scenarios of the provider's page, in Chromium driven by Playwright: `scenarios.py NAME URL#key=KEY`.

Standard output asks for what only the other side can do, a request a line; each is answered by a line.
"""

import json
import shutil
import sys
import urllib.request
from contextlib import contextmanager

from playwright.sync_api import expect, sync_playwright

# Generous: a loaded machine is slow, and nothing here is a measurement.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)

STATUS = {
    "machine": "memcached-1",
    "application": "memcached",
    "at_ns": 5_000_000_000,
    "window_ns": 500_000_000,
    "batching_delay_us": 40,
    "polls": True,
    "cores": 1,
    "memory_bytes": 12 << 20,
    "requests": 20_000,
    "sent_bytes": 22_000_000,
    "received_bytes": 2_000_000,
    "latency_mean_ns": 399_000,
    "latency_jitter_ns": 121_000,
    "latency_p99_ns": 800_000,
    "price_revision": 1,
    "price_network_out": 1.0,
    "revenue_per_second": 7.0,
    "cost_per_second": 3.5,
    "profit": 41.25,
}


def ask(request):
    """Has the other side do something, and returns its answer."""
    print(request, flush=True)
    answer = sys.stdin.readline().strip()
    assert answer, f"`{request}` was not done"
    return answer


def post(url, path, body):
    """Posts with the key that the URL has for the page."""
    base, key = url.split("/#key=")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        assert answer.status < 300


def report(url, **fields):
    """Reports a status as a machine does."""
    post(url, "/v1/status", STATUS | fields)


def enter(url, **fields):
    """Enters a record into the ledger as a meter does."""
    record = {
        "id": "memcached-1/1",
        "machine": "memcached-1",
        "activity": "memcached",
        "resource": "network_out",
        "quantity": 250_000_000,
        "unit": "byte",
        "unit_price": 10.0,
        "from_unix_ns": 1_000_000_000,
        "to_unix_ns": 2_000_000_000,
    }
    post(url, "/v1/ledger/records", {"records": [record | fields]})


@contextmanager
def browser_page(**options):
    """A page in a fresh browser, and the list of what went wrong in it."""
    chromium = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(**options)
        page.set_default_timeout(PATIENCE_MS)
        errors = []
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page, errors
        browser.close()


def cell(page, row, field):
    return page.locator(f"{row} [data-field={field}]")


def check_row(page, row, **cells):
    for field, text in cells.items():
        expect(cell(page, row, field.replace("_", "-"))).to_have_text(text)


OUT = "#prices [data-resource=network_out]"
MACHINE = "#machines [data-machine=memcached-1]"


def figures(url):
    """What is known is shown, and changes without a reload."""
    with browser_page() as (page, errors):
        page.goto(url)
        expect(page.locator("#connection")).to_have_text("connected")
        expect(page.locator("#earned")).to_have_text("no machine reported yet")
        ask("price 1")
        check_row(page, OUT, price="1", unit="$/Gbit")
        expect(page.locator("#source")).to_contain_text("confirmed 0 s ago")
        report(url)
        check_row(
            page,
            MACHINE,
            application="memcached",
            working_point="W 40 us, polls, 1 core, 12 MiB",
            throughput="40,000 /s",
            sent="352 Mbit/s",
            latency="399 us",
            p99="800 us",
            jitter="121 us",
            price_used="1 $/Gbit",
            profit="3.5 $/s",
            so_far="41.3 $",
        )
        expect(page.locator("#earned")).to_have_text("profit of all so far: 41.3 $")
        page.wait_for_timeout(1_100)  # The curve has one value for each second.
        ask("price 10")
        check_row(page, OUT, price="10")
        check_row(page, MACHINE, price_used="1 $/Gbit (revision 1 of 2)")
        report(url, price_revision=2, price_network_out=10.0, revenue_per_second=1.0, polls=False)
        check_row(
            page,
            MACHINE,
            price_used="10 $/Gbit",
            working_point="W 40 us, sleeps until interrupts, 1 core, 12 MiB",
            profit="-2.5 $/s",
        )
        report(url, machine="nhttpd-1", application="nhttpd", requests=0, profit=-1.25)
        check_row(page, "#machines [data-machine=nhttpd-1]", latency="-", so_far="-1.25 $")
        expect(page.locator("#earned")).to_have_text("profit of all so far: 40 $")
        expect(page.locator("#machines tr")).to_have_count(2)
        expect(page.locator("#owed")).to_have_text("nothing recorded yet")
        enter(url)
        row = "#ledger [data-machine=memcached-1]"
        check_row(page, row, activity="memcached", resource="network out", used="250,000,000", owed="20 $")
        expect(page.locator("#owed")).to_have_text("owed for all: 20 $")
        curve = page.locator(f"{OUT} svg")
        expect(curve).to_have_attribute("aria-label", "last minute from 1 to 10")
        assert errors == [], errors


def outage(url):
    """Without its provider the page says so, marks what grows old, and goes on when it is back."""
    with browser_page() as (page, errors):
        page.clock.install()
        page.goto(url)
        ask("price 10")
        report(url)
        check_row(page, MACHINE, throughput="40,000 /s")
        assert errors == [], errors
        ask("stop")
        page.clock.run_for(2_000)
        expect(page.locator("#connection")).to_have_text("no connection to the provider, trying again")
        expect(page.locator(OUT)).to_have_attribute("data-stale", "false")
        page.clock.run_for(65_000)
        expect(page.locator("#source")).to_contain_text("stale")
        expect(page.locator(OUT)).to_have_attribute("data-stale", "true")
        check_row(page, OUT, price="10")
        expect(cell(page, MACHINE, "reported")).to_contain_text("silent")
        # A browser itself notes a refused connection; anything else is the page's fault.
        assert all("net::ERR_" in error for error in errors), errors
        ask("start")
        ask("price 1")
        for _ in range(60):
            page.clock.run_for(1_000)
            if page.locator("#connection").text_content() == "connected":
                break
            page.wait_for_timeout(500)
        expect(page.locator("#connection")).to_have_text("connected")
        check_row(page, OUT, price="1")
        expect(page.locator(OUT)).to_have_attribute("data-stale", "false")
        report(url, requests=10_000)
        check_row(page, MACHINE, throughput="20,000 /s")


def readers(url):
    """Markup in a name stays text; the page has structure, two colour schemes, and fits a telephone."""
    name = "<img src=x onerror=alert(1)>"
    with browser_page(viewport={"width": 360, "height": 640}, color_scheme="dark") as (page, errors):
        ask("price 1")
        report(url, machine=name)
        page.goto(url)
        expect(page.get_by_role("rowheader", name=name)).to_be_visible()
        expect(page.get_by_role("table")).to_have_count(3)
        for heading in ["Prices", "Machines", "Ledger"]:
            expect(page.get_by_role("region", name=heading)).to_be_visible()
        expect(page.get_by_role("status")).to_have_text("connected")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = page.evaluate(background)
        page.emulate_media(color_scheme="light")
        assert page.evaluate(background) != dark, dark
        overflow = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        assert overflow <= 0, f"{overflow} pixels wider than the screen"
        assert errors == [], errors


def columns(url):
    """On a screen of 1,300 pixels no column is hidden, whatever the figures are."""
    with browser_page(viewport={"width": 1300, "height": 800}) as (page, errors):
        ask("price 1")
        page.goto(url)
        report(
            url,
            machine="shop-europe-1",
            polls=False,
            cores=12,
            memory_bytes=1536 << 20,
            requests=1_200_000,
            sent_bytes=2_200_000_000,
        )
        ask("price 10")
        check_row(page, "#machines tr", price_used="1 $/Gbit (revision 1 of 2)")
        for table in page.locator(".scroll").all():
            hidden = table.evaluate("table => table.scrollWidth - table.clientWidth")
            assert hidden <= 0, f"{hidden} pixels of a table are hidden"
        assert errors == [], errors


def late(url):
    """An answer of who has reported takes nobody away who reported after it was given."""
    with browser_page() as (page, errors):
        answers = []
        page.route("**/v1/status", lambda route: answers.append((route, route.fetch())))
        ask("price 1")
        page.goto(url)
        while not answers:
            page.wait_for_timeout(50)
        report(url)
        check_row(page, MACHINE, throughput="40,000 /s")
        for route, answer in answers:
            assert answer.json() == [], answer.text()
            route.fulfill(response=answer)
        # The page shows what it knows twice a second.
        page.wait_for_timeout(1_500)
        check_row(page, MACHINE, throughput="40,000 /s")
        expect(page.locator(MACHINE)).to_have_count(1)
        assert errors == [], errors


SCENARIOS = [figures, outage, readers, columns, late]

if __name__ == "__main__":
    {scenario.__name__: scenario for scenario in SCENARIOS}[sys.argv[1]](sys.argv[2])
