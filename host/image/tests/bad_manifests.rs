//! Every mistake in a manifest is told with file, line, field and what was expected.

mod common;

use expect_test::{Expect, expect};
use nom_image::manifest;

fn check(text: &str, expected: Expect) {
    let directory = common::directory(text);
    let error = manifest::load(directory.path()).expect_err("the manifest is bad");
    expected.assert_eq(&common::without(directory.path(), error));
}

/// A good application to which a bad line is added.
fn check_field(line: &str, expected: Expect) {
    check(&format!("name = \"a\"\nprogram = \"p\"\n{line}\n"), expected);
}

#[test]
fn syntax() {
    check_field("cores =", expect!["app.toml:3: string values must be quoted, expected literal string"]);
    check_field("cores = 1\ncores = 2", expect!["app.toml:4: duplicate key"]);
    check_field("arguments = [\"a\"", expect!["app.toml:3: unclosed array, expected `]`"]);
}

#[test]
fn missing() {
    check("program = \"p\"", expect!["app.toml: `name`: missing, every application needs one"]);
    check("name = \"a\"", expect!["app.toml: `program`: missing, every application needs one"]);
    check("--- other.toml\n", expect!["app.toml: cannot be read: No such file or directory (os error 2)"]);
}

#[test]
fn unknown_fields() {
    check_field(
        "colour = 1",
        expect![
            "app.toml:3: `colour`: unknown field `colour`, expected one of `name`, `program`, `arguments`, `environment`, `cores`, `memory`, `stack`, `weight`, `autostart`, `essential`, `devices`, `peers`, `manages`, `ports`, `inherit`, `file`"
        ],
    );
    check_field(
        "peers = [{ name = \"b\", size = 1 }]",
        expect!["app.toml:3: `peers[0].size`: unknown field `size`, expected `name` or `bytes`"],
    );
    check_field(
        "devices = [{ clas = 1 }]",
        expect![
            "app.toml:3: `devices[0].clas`: unknown field `clas`, expected one of `class`, `vendor`, `device`"
        ],
    );
    check_field(
        "file = \"other.toml\"",
        expect!["app.toml:3: `file`: only an entry of a bundle has it, expected `inherit = [..]` here"],
    );
    check(
        "--- bundle.toml\napplications = [\"app.toml\"]\nname = \"x\"",
        expect!["bundle.toml:2: `name`: unknown field `name`, expected `applications`"],
    );
    check(
        "--- bundle.toml\napplications = [\n\"app.toml\",\n{ fil = \"x\" }]",
        expect![
            "bundle.toml:3: `applications[1].fil`: unknown field `fil`, expected one of `name`, `program`, `arguments`, `environment`, `cores`, `memory`, `stack`, `weight`, `autostart`, `essential`, `devices`, `peers`, `manages`, `ports`, `inherit`, `file`"
        ],
    );
}

#[test]
fn wrong_types() {
    check_field(
        "cores = \"two\"",
        expect![[
            r#"app.toml:3: `cores`: invalid value: string "two", expected a whole number from 1 to 64"#
        ]],
    );
    check_field(
        "memory = true",
        expect![[
            r#"app.toml:3: `memory`: invalid type: boolean `true`, expected a size such as "64MiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 64 TiB"#
        ]],
    );
    check_field(
        "arguments = \"one\"",
        expect![[r#"app.toml:3: `arguments`: invalid type: string "one", expected a sequence"#]],
    );
    check_field(
        "arguments = [\n\"one\",\n2]",
        expect![
            "app.toml:5: `arguments[1]`: invalid value: integer `2`, expected a string without zero bytes"
        ],
    );
    check_field(
        "autostart = 1",
        expect!["app.toml:3: `autostart`: invalid type: integer `1`, expected a boolean"],
    );
    check_field(
        "[environment]\nA = 1",
        expect![
            "app.toml:4: `environment.A`: invalid value: integer `1`, expected a string without zero bytes"
        ],
    );
    check_field(
        "peers = \"b\"",
        expect![[r#"app.toml:3: `peers`: invalid type: string "b", expected a sequence"#]],
    );
    check_field(
        "manages = [3]",
        expect![
            "app.toml:3: `manages[0]`: invalid value: integer `3`, expected a name of 1 to 31 ASCII letters, digits, `-`, `_` or `.`"
        ],
    );
    check_field(
        "name2 = [3]",
        expect![
            "app.toml:3: `name2`: unknown field `name2`, expected one of `name`, `program`, `arguments`, `environment`, `cores`, `memory`, `stack`, `weight`, `autostart`, `essential`, `devices`, `peers`, `manages`, `ports`, `inherit`, `file`"
        ],
    );
    check(
        "--- bundle.toml\napplications = \"app.toml\"",
        expect![[r#"bundle.toml:1: `applications`: invalid type: string "app.toml", expected a sequence"#]],
    );
    check(
        "--- bundle.toml\napplications = [7]",
        expect![[
            r#"bundle.toml:1: `applications[0]`: invalid type: integer `7`, expected the path of an app.toml, or a table such as { file = "app.toml", name = "other" }"#
        ]],
    );
}

#[test]
fn numbers_out_of_range() {
    check_field(
        "cores = 0",
        expect!["app.toml:3: `cores`: invalid value: integer `0`, expected a whole number from 1 to 64"],
    );
    check_field(
        "cores = 65",
        expect!["app.toml:3: `cores`: invalid value: integer `65`, expected a whole number from 1 to 64"],
    );
    check_field(
        "cores = -1",
        expect!["app.toml:3: `cores`: invalid value: integer `-1`, expected a whole number from 1 to 64"],
    );
    check_field(
        "cores = 99999999999999999999",
        expect![
            "app.toml:3: `cores`: invalid type: integer `99999999999999999999` as i128, expected a whole number from 1 to 64"
        ],
    );
    check_field(
        "weight = 10001",
        expect![
            "app.toml:3: `weight`: invalid value: integer `10001`, expected a whole number from 1 to 10000"
        ],
    );
    check_field(
        "weight = 1.5",
        expect![
            "app.toml:3: `weight`: invalid type: floating point `1.5`, expected a whole number from 1 to 10000"
        ],
    );
    check_field(
        "memory = 4097",
        expect![[
            r#"app.toml:3: `memory`: invalid value: integer `4097`, expected a size such as "64MiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 64 TiB"#
        ]],
    );
    check_field(
        "memory = \"64MB\"",
        expect![[
            r#"app.toml:3: `memory`: invalid value: string "64MB", expected a size such as "64MiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 64 TiB"#
        ]],
    );
    check_field(
        "memory = \"99999999999GiB\"",
        expect![[
            r#"app.toml:3: `memory`: invalid value: string "99999999999GiB", expected a size such as "64MiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 64 TiB"#
        ]],
    );
    check_field(
        "stack = \"-4KiB\"",
        expect![[
            r#"app.toml:3: `stack`: invalid value: string "-4KiB", expected a size such as "64KiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 1 GiB"#
        ]],
    );
    check_field(
        "stack = 0",
        expect![[
            r#"app.toml:3: `stack`: invalid value: integer `0`, expected a size such as "64KiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 1 GiB"#
        ]],
    );
    check_field(
        "peers = [{ name = \"b\", bytes = \"2GiB\" }]",
        expect![[
            r#"app.toml:3: `peers[0].bytes`: invalid value: string "2GiB", expected a size such as "64KiB" (KiB, MiB, GiB or a number of bytes), a multiple of 4096, at most 1 GiB"#
        ]],
    );
    check_field(
        "devices = [{ vendor = 0x1ffff }]",
        expect![
            "app.toml:3: `devices[0].vendor`: invalid value: integer `131071`, expected a PCI identifier from 0x0000 to 0xfffe"
        ],
    );
    check_field(
        "devices = [{ class = \"disk\" }]",
        expect![[
            r#"app.toml:3: `devices[0].class`: invalid value: string "disk", expected "network", "entropy" or a PCI class code from 0x000000 to 0xfffffe (base, sub, interface)"#
        ]],
    );
}

#[test]
fn bad_texts() {
    check(
        "name = \"a b\"\nprogram = \"p\"",
        expect![[
            r#"app.toml:1: `name`: invalid value: string "a b", expected a name of 1 to 31 ASCII letters, digits, `-`, `_` or `.`"#
        ]],
    );
    check(
        "name = \"\"\nprogram = \"p\"",
        expect![[
            r#"app.toml:1: `name`: invalid value: string "", expected a name of 1 to 31 ASCII letters, digits, `-`, `_` or `.`"#
        ]],
    );
    check(
        "name = \"a23456789-123456789-123456789-12\"\nprogram = \"p\"",
        expect![[
            r#"app.toml:1: `name`: invalid value: string "a23456789-123456789-123456789-12", expected a name of 1 to 31 ASCII letters, digits, `-`, `_` or `.`"#
        ]],
    );
    check(
        "name = \"a\"\nprogram = \"\"",
        expect!["app.toml:2: `program`: empty, expected a package name, or a path with a `/`"],
    );
    check_field(
        "arguments = [\"a\\u0000b\"]",
        expect![[
            r#"app.toml:3: `arguments[0]`: invalid value: string "a\0b", expected a string without zero bytes"#
        ]],
    );
    check_field(
        "environment = { \"A=B\" = \"c\" }",
        expect![[
            r#"app.toml:3: `environment.A=B`: invalid value: string "A=B", expected the name of an environment variable, without `=` and zero bytes"#
        ]],
    );
    check_field(
        "ports = [\"80\"]",
        expect![[
            r#"app.toml:3: `ports[0]`: invalid value: string "80", expected [ADDRESS:]HOST:GUEST[/udp] with ports from 1 to 65535"#
        ]],
    );
    check_field(
        "ports = [\"80:0\"]",
        expect![[
            r#"app.toml:3: `ports[0]`: invalid value: string "80:0", expected [ADDRESS:]HOST:GUEST[/udp] with ports from 1 to 65535"#
        ]],
    );
    check_field(
        "ports = [\"80:80/sctp\"]",
        expect![[
            r#"app.toml:3: `ports[0]`: invalid value: string "80:80/sctp", expected [ADDRESS:]HOST:GUEST[/udp] with ports from 1 to 65535"#
        ]],
    );
    check_field(
        "ports = [\"localhost:80:80\"]",
        expect![[
            r#"app.toml:3: `ports[0]`: invalid value: string "localhost:80:80", expected [ADDRESS:]HOST:GUEST[/udp] with ports from 1 to 65535"#
        ]],
    );
}

#[test]
fn devices_that_contradict_themselves() {
    check_field(
        "devices = [{ class = \"entropy\", vendor = 1 }]",
        expect![[
            r#"app.toml:3: `devices`: class "entropy" names vendor and device itself, expected it alone"#
        ]],
    );
}

#[test]
fn inheritance() {
    check_field(
        "inherit = [\n\"base.toml\"]",
        expect!["app.toml:4: base.toml cannot be read: No such file or directory (os error 2)"],
    );
    check_field("inherit = [\"app.toml\"]", expect!["app.toml:3: app.toml inherits from itself"]);
    check(
        "inherit = [\"b.toml\"]\n--- b.toml\ninherit = [\"d/c.toml\"]\n--- d/c.toml\n\ninherit = [\"../b.toml\"]",
        expect!["d/c.toml:2: d/../b.toml inherits from itself"],
    );
    check(
        "inherit = [\"b.toml\"]\n--- b.toml\nname = \"a\"\nprogram = \"p\"\nweight = 0\n",
        expect!["b.toml:3: `weight`: invalid value: integer `0`, expected a whole number from 1 to 10000"],
    );
}

#[test]
fn bundles() {
    check(
        "--- bundle.toml\napplications = []",
        expect!["bundle.toml:1: `applications`: empty, expected at least one application"],
    );
    check(
        "--- bundle.toml\n\napplications = [\n\"missing.toml\"]",
        expect!["bundle.toml:3: missing.toml cannot be read: No such file or directory (os error 2)"],
    );
    check(
        "name = \"a\"\nprogram = \"p\"\n--- bundle.toml\napplications = [\"app.toml\", \"app.toml\"]",
        expect![
            "app.toml:1: `name`: two applications are called `a`, expected different names (an entry { file = .., name = .. } of a bundle can give another)"
        ],
    );
    check(
        "--- bundle.toml\napplications = [{ name = \"a\" }]",
        expect!["bundle.toml:1: `program`: missing, every application needs one"],
    );
    let many: String =
        (0..65).map(|n| format!("[[applications]]\nname = \"a{n}\"\nprogram = \"p\"\n")).collect();
    check(
        &format!("--- bundle.toml\n{many}"),
        expect!["bundle.toml:194: more than 64 applications in one bundle"],
    );
    check(
        "--- bundle.toml\napplications = [\"bundle.toml\"]",
        expect!["bundle.toml:1: bundle.toml inherits from itself"],
    );
}

fn check_pair(one: &str, two: &str, expected: Expect) {
    let text = format!(
        "--- bundle.toml\n[[applications]]\nname = \"a\"\nprogram = \"p\"\n{one}\n\
         [[applications]]\nname = \"b\"\nprogram = \"p\"\n{two}\n"
    );
    check(&text, expected);
}

#[test]
fn relations_between_applications() {
    check_field(
        "peers = [{ name = \"b\" }]",
        expect!["app.toml:3: `peers`: `b` is unknown, `a` is alone in this bundle"],
    );
    check_pair(
        "peers = [{ name = \"c\" }]",
        "",
        expect!["bundle.toml:4: `peers`: `c` is unknown, expected one of `b`"],
    );
    check_pair(
        "peers = [{ name = \"a\" }]",
        "",
        expect!["bundle.toml:4: `peers`: `a` is the application itself"],
    );
    check_pair(
        "peers = [{ name = \"b\" }, { name = \"b\" }]",
        "",
        expect!["bundle.toml:4: `peers`: `b` is listed twice"],
    );
    check_pair("peers = [{ bytes = 4096 }]", "", expect!["bundle.toml:4: `peers`: an entry has no `name`"]);
    check_pair(
        "peers = [{ name = \"b\" }]",
        "peers = [{ name = \"a\" }]",
        expect![
            "bundle.toml:8: `peers`: `b` and `a` list each other, expected only one of them to list the channel"
        ],
    );
    check_pair(
        "",
        "manages = [\n\"a\",\n\"x\"]",
        expect!["bundle.toml:10: `manages`: `x` is unknown, expected one of `a`"],
    );
    check_pair("manages = [\"a\"]", "", expect!["bundle.toml:4: `manages`: `a` is the application itself"]);
}

#[test]
fn applications_that_cannot_start() {
    check_field(
        "autostart = false",
        expect![
            "app.toml:3: `autostart`: `a` can never start, expected `true` or an application that manages it"
        ],
    );
    check_pair(
        "autostart = false",
        "",
        expect![
            "bundle.toml:4: `autostart`: `a` can never start, expected `true` or an application that manages it"
        ],
    );
    check_pair(
        "manages = [\"b\"]\nautostart = false",
        "manages = [\"a\"]\nautostart = false",
        expect!["bundle.toml:5: `autostart`: no application starts at boot, expected one that does"],
    );
}

#[test]
fn too_many_channels() {
    let application = |n: usize| {
        let peers: String = (n + 1..12).map(|peer| format!("{{ name = \"a{peer}\" }},")).collect();
        format!("[[applications]]\nname = \"a{n}\"\nprogram = \"p\"\npeers = [{peers}]\n")
    };
    let all: String = (0..12).map(application).collect();
    check(
        &format!("--- bundle.toml\n{all}"),
        expect!["bundle.toml:40: `peers`: more than 64 channels in one bundle"],
    );
}
