"""Serves HTTP in two ways: a thread for each connection at port 80, asyncio at port 81. Who asks the latter
for /compute has a thread compute from then on."""

import asyncio
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"threads: {self.path}\n".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def compute():
    while True:
        pass


async def answer(reader, writer):
    while line := await reader.readline():
        if line.split()[1] == b"/compute":
            threading.Thread(target=compute, daemon=True).start()
        keep = True
        while header := (await reader.readline()).strip():
            keep = keep and header.lower() != b"connection: close"
        body = b"asyncio: " + line.split()[1] + b"\n"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        if not keep:
            break
    writer.close()


async def main():
    async with await asyncio.start_server(answer, "0.0.0.0", 81) as server:
        await server.serve_forever()


threaded = http.server.ThreadingHTTPServer(("0.0.0.0", 80), Handler)
threading.Thread(target=threaded.serve_forever, daemon=True).start()
asyncio.run(main())
