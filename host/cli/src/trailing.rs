//! Arguments of a Linux program without `--` before them, as with `strace` and `docker run`: from the program
//! on, all words are its own.

use crate::arguments::Arguments;
use crate::linux;
use clap::{Arg, Command, CommandFactory};
use std::ffi::{OsStr, OsString};

/// Commands that start a program, or write an image that does.
const COMMANDS: [&str; 3] = ["run", "strace", "build"];
/// Options that say that it is one of Linux, whatever it is called.
const LINUX_OPTIONS: [&str; 2] = ["oci", "root"];

/// The command line with `--` behind the Linux program that it names, if it has none there. Applications with
/// a manifest have their arguments behind `--` alone, since nom's own options may follow them.
pub fn separated(mut words: Vec<OsString>) -> Vec<OsString> {
    let Some(verb) = words.get(1).and_then(|word| COMMANDS.into_iter().find(|name| word == name)) else {
        return words;
    };
    let command = Arguments::command();
    let Some(command) = command.find_subcommand(verb) else { return words };
    let Some(Named { at, is_linux }) = named(command, &words[2..]) else { return words };
    let behind = at + 3;
    if words.len() > behind && words[behind] != "--" && (is_linux || is_linux_program(&words[behind - 1])) {
        words.insert(behind, OsString::from("--"));
    }
    words
}

/// What a command is to start.
struct Named {
    /// Which of the words it is.
    at: usize,
    /// Whether the command or its options say that it is a program of Linux.
    is_linux: bool,
}

/// The first word that is neither an option nor the value of one; nothing if there is none before `--`, or an
/// option is unknown, which is then complained of.
fn named(command: &Command, words: &[OsString]) -> Option<Named> {
    let mut is_linux = command.get_name() == "strace";
    let mut at = 0;
    while at < words.len() {
        let word = words[at].to_str().filter(|word| word.len() > 1 && word.starts_with('-'));
        let Some(word) = word else { return Some(Named { at, is_linux }) };
        let (option, has_value) = match word.strip_prefix("--") {
            Some("") => return None,
            Some(long) => long_option(command, long)?,
            None => short_options(command, word)?,
        };
        is_linux |= option.get_long().is_some_and(|long| LINUX_OPTIONS.contains(&long));
        at += if takes_value(option) && !has_value { 2 } else { 1 };
    }
    None
}

/// The option `--NAME` or `--NAME=VALUE`, and whether its value is there.
fn long_option<'a>(command: &'a Command, word: &str) -> Option<(&'a Arg, bool)> {
    let (name, has_value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
    command.get_arguments().find(|option| option.get_long() == Some(name)).map(|option| (option, has_value))
}

/// The last option of `-abc` or `-abVALUE`, and whether its value is there.
fn short_options<'a>(command: &'a Command, word: &str) -> Option<(&'a Arg, bool)> {
    let mut letters = word.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        let option = command.get_arguments().find(|option| option.get_short() == Some(letter))?;
        if takes_value(option) || letters.peek().is_none() {
            return Some((option, at + letter.len_utf8() < word.len()));
        }
    }
    None
}

fn takes_value(option: &Arg) -> bool {
    option.get_action().takes_values()
}

/// Whether a word is the path of a program here, or has the form of an image's name.
fn is_linux_program(word: &OsStr) -> bool {
    word.to_str().is_some_and(linux::is_named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments;
    use clap::Parser;

    fn separate(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = separated(words).into_iter().map(|word| word.into_string().expect("UTF-8"));
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn what_follows_a_program_is_its_own() {
        for (line, expected) in [
            ("nom run /bin/sh -c echo", "nom run /bin/sh -- -c echo"),
            ("nom run /bin/sh -- -c echo", "nom run /bin/sh -- -c echo"),
            ("nom run /bin/sh -c echo -- -d", "nom run /bin/sh -- -c echo -- -d"),
            ("nom run -dm 1G --cpus=1 /bin/sh -m 64", "nom run -dm 1G --cpus=1 /bin/sh -- -m 64"),
            ("nom run -m1G -v /a:/b /bin/sh /etc", "nom run -m1G -v /a:/b /bin/sh -- /etc"),
            ("nom run redis:7 --port 6380", "nom run redis:7 -- --port 6380"),
            ("nom run localhost:5000/x:1 -d", "nom run localhost:5000/x:1 -- -d"),
            ("nom run --oci x.tar sh -c ls", "nom run --oci x.tar sh -- -c ls"),
            ("nom run --root=/srv /no/such -x", "nom run --root=/srv /no/such -- -x"),
            ("nom strace -c -o FILE ls -l", "nom strace -c -o FILE ls -- -l"),
            ("nom strace -e trace=read /bin/ls -e x", "nom strace -e trace=read /bin/ls -- -e x"),
            ("nom build -o x.img /bin/sh -o x", "nom build -o x.img /bin/sh -- -o x"),
        ] {
            assert_eq!(separate(line), expected);
        }
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        for line in [
            "nom",
            "nom run",
            "nom run hello --cpus 2 -- one",
            "nom run hello --cpus 2",
            "nom run apps/web/app.toml -d",
            "nom run --oci x.tar -- -x",
            "nom run --bogus /bin/sh -c x",
            "nom run -m",
            "nom run -xd /bin/sh -c x",
            "nom run /bin/sh",
            "nom ps /bin/sh -a",
            "nom logs -f /bin/sh x",
        ] {
            assert_eq!(separate(line), line);
        }
    }

    #[test]
    fn programs_get_their_arguments_either_way() {
        for line in ["nom run -m 1G /bin/sh -c exit -m 64", "nom run -m 1G /bin/sh -- -c exit -m 64"] {
            let words = separated(line.split(' ').map(OsString::from).collect());
            let command = Arguments::try_parse_from(words).expect(line).command;
            let arguments::Command::Run(run) = command else { panic!("{line} is `nom run`") };
            assert_eq!(run.arguments, ["-c", "exit", "-m", "64"], "{line}");
            assert_eq!(run.memory.map(|memory| memory.to_string()), Some("1G".to_owned()), "{line}");
        }
    }
}
