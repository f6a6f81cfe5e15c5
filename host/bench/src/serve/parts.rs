//! Which parts of nom the instructions of a request are spent in.
//!
//! The plugin lists each instruction with how often it was executed; `addr2line` of binutils tells from the
//! lines of the program which source it was made from, and into whom that was inlined.

use crate::linux::save;
use anyhow::{Context, Result, ensure};
use nom_abi::layout::APPLICATION_END;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The mark of an instruction that locks memory; see `guest/count.rs`.
const LOCKED: u64 = 1 << 62;
/// Programs are placed at multiples of this, and are smaller.
const PLACEMENT: u64 = 2 << 20;
/// Where the kernel is linked, and from where on addresses are its own.
const KERNEL: u64 = 0xffff_ffff_8000_0000;
const HIGHER_HALF: u64 = 1 << 63;
/// The code of an unmodified program and its libraries, all of it.
const UNMODIFIED: &str = "program";

/// How often each instruction was executed, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    counts: BTreeMap<u64, u64>,
    locked: BTreeSet<u64>,
}

impl Executed {
    /// What the plugin wrote.
    pub fn read(file: &[u8]) -> Executed {
        let mut words = file.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut executed = Executed::default();
        while let (Some(count), Some(instructions @ 1..)) = (words.next(), words.next()) {
            for word in words.by_ref().take(instructions as usize) {
                let is_locked = (word >> 62 & 1) != (word >> 63);
                let address = if is_locked { word ^ LOCKED } else { word };
                *executed.counts.entry(address).or_default() += count;
                if is_locked {
                    executed.locked.insert(address);
                }
            }
        }
        executed
    }

    /// What was executed since `earlier`.
    pub fn since(mut self, earlier: &Executed) -> Executed {
        for (address, count) in &mut self.counts {
            *count -= earlier.counts.get(address).unwrap_or(&0);
        }
        self.counts.retain(|_, count| *count > 0);
        self
    }

    /// Instructions that locked memory.
    pub fn locked(&self) -> u64 {
        self.locked.iter().filter_map(|address| self.counts.get(address)).sum()
    }
}

/// The programs of a guest, with symbols.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The application's.
    pub application: PathBuf,
    /// The kernel's.
    pub kernel: PathBuf,
}

/// Where an instruction comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Origin {
    /// The innermost file of nom's, from the checkout on, and the function in it; or the library's.
    file: String,
    function: String,
    /// The function of the program that it is part of.
    symbol: String,
}

/// Instructions by where they come from.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    origins: Vec<(Origin, u64)>,
    /// Those that lock memory.
    locked: Vec<(Origin, u64)>,
}

impl Programs {
    /// Where what was executed comes from.
    ///
    /// # Errors
    /// If `addr2line` is missing or cannot read a program.
    pub fn parts(&self, executed: &Executed) -> Result<Parts> {
        let (user, kernel): (Vec<_>, Vec<_>) =
            executed.counts.iter().partition(|(address, _)| **address < HIGHER_HALF);
        let (program, user): (Vec<_>, Vec<_>) =
            user.into_iter().partition(|(address, _)| **address < APPLICATION_END);
        let unmodified =
            Origin { file: UNMODIFIED.into(), function: String::new(), symbol: UNMODIFIED.into() };
        let mut parts = Parts::default();
        parts.origins.push((unmodified, program.iter().map(|(_, count)| **count).sum()));
        for (program, base, counts) in [(&self.application, 0, user), (&self.kernel, KERNEL, kernel)] {
            let addresses: Vec<u64> = counts.iter().map(|(address, _)| base + *address % PLACEMENT).collect();
            for (origin, (address, count)) in resolve(program, &addresses)?.into_iter().zip(counts) {
                if executed.locked.contains(address) {
                    parts.locked.push((origin.clone(), *count));
                }
                parts.origins.push((origin, *count));
            }
        }
        Ok(parts)
    }
}

/// Asks `addr2line` about each address.
fn resolve(program: &Path, addresses: &[u64]) -> Result<Vec<Origin>> {
    let mut child = Command::new("addr2line")
        .args(["-a", "-i", "-f", "-C", "-e"])
        .arg(program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run addr2line, of the package binutils")?;
    let mut stdin = child.stdin.take().context("addr2line has no input")?;
    let asked: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let output = std::thread::scope(|scope| {
        let writer = scope.spawn(move || stdin.write_all(asked.as_bytes()));
        let output = child.wait_with_output();
        writer.join().expect("writing does not panic").and(output)
    })?;
    ensure!(output.status.success(), "addr2line cannot read {}", program.display());
    let origins = origins(&String::from_utf8_lossy(&output.stdout));
    let (found, expected) = (origins.len(), addresses.len());
    ensure!(found == expected, "addr2line told of {found} addresses, expected {expected}");
    Ok(origins)
}

/// What `addr2line` says: for each address a line with it, and then, from the innermost function on, its name
/// and its place.
fn origins(said: &str) -> Vec<Origin> {
    let mut origins: Vec<Origin> = Vec::new();
    let mut lines = said.lines().peekable();
    while let Some(_address) = lines.next() {
        let mut origin = Origin::default();
        while let Some(function) = lines.next_if(|line| !line.starts_with("0x")) {
            let place = lines.next().unwrap_or_default();
            let file = own_file(place.rsplit_once(':').map_or(place, |(file, _)| file));
            origin.symbol = function.to_owned();
            if let Some(file) = file
                && origin.file.is_empty()
            {
                origin.file = file.to_owned();
                origin.function = last_name(function).to_owned();
            }
        }
        if origin.file.is_empty() {
            origin.file = "library".into();
            origin.function.clone_from(&origin.symbol);
        }
        origins.push(origin);
    }
    origins
}

/// The name of a function without where it is and what it is made for.
fn last_name(function: &str) -> &str {
    let (mut depth, mut end) = (0, function.len());
    for (at, byte) in function.bytes().enumerate().rev() {
        match byte {
            b'>' => depth += 1,
            b'<' => {
                depth -= 1;
                if depth == 0 && end == function.len() {
                    end = at;
                }
            }
            b':' if depth == 0 && at + 1 < end => {
                let name = function[at + 1..end].trim_end_matches(':');
                if !name.is_empty() {
                    return name;
                }
                end = at;
            }
            _ => {}
        }
    }
    &function[..end]
}

/// A file of the checkout, from there on.
fn own_file(path: &str) -> Option<&str> {
    let is_foreign = path.contains("/library/") || path.contains("/registry/");
    let own = ["libos/", "apps/", "kernel/", "abi/", "economy/"];
    own.into_iter().filter(|_| !is_foreign).find_map(|top| {
        path.match_indices(top)
            .find(|(at, _)| *at == 0 || path.as_bytes()[at - 1] == b'/')
            .map(|(at, _)| &path[at..])
    })
}

/// What tells the device of what is sent, wherever it is.
const FLUSHING: [&str; 4] = ["flush", "kick", "publish", "reason"];
const FLUSH: &str = "flush";

/// Parts of the path of a request, by the beginnings of files' names; the first that fits counts.
const PARTS: [(&str, &[&str]); 9] = [
    ("receive", &["libos/virtio/src/net/receive", "libos/virtio/src/net/pair", "libos/port/src/nic"]),
    ("transmit", &["libos/virtio/src/net", "libos/net/src/link"]),
    ("rings_and_buffers", &["libos/virtio", "libos/port"]),
    ("tcp_out", &["libos/net/src/tcp/emit", "libos/net/src/tcp/flight", "libos/net/src/stack/flows"]),
    ("tcp_in", &["libos/net/src/tcp"]),
    ("classify", &["libos/net"]),
    (
        "server",
        &[
            "libos/serve",
            "libos/service",
            "libos/grid",
            "libos/elastic",
            "libos/rt",
            "libos/sys",
            "libos/app",
            "libos/earn",
            "libos/linux",
            "libos/fs",
            "economy",
        ],
    ),
    ("service", &["apps", UNMODIFIED]),
    ("kernel", &["kernel", "abi"]),
];

/// What fits no part: copying and clearing memory, for the most part.
const LIBRARY: &str = "memory_functions";

fn part(origin: &Origin) -> &'static str {
    let is_flushing = FLUSHING.contains(&&*origin.function);
    if is_flushing
        && ["libos/net", "libos/virtio", "libos/serve"].iter().any(|top| origin.file.starts_with(top))
    {
        return FLUSH;
    }
    let fits = |(_, beginnings): &&(&str, &[&str])| {
        beginnings.iter().any(|beginning| origin.file.starts_with(beginning))
    };
    PARTS.iter().find(fits).map_or(LIBRARY, |(name, _)| name)
}

/// The parts in the order of a request's way.
pub fn names() -> impl Iterator<Item = &'static str> {
    ORDER.into_iter()
}

const ORDER: [&str; 11] = [
    "receive",
    "classify",
    "tcp_in",
    "server",
    "service",
    "tcp_out",
    "transmit",
    FLUSH,
    "rings_and_buffers",
    LIBRARY,
    "kernel",
];

/// How a part's instructions are called in records.
pub fn metric(part: &str) -> String {
    format!("instructions_of_{part}")
}

impl Parts {
    /// Instructions of each part, in the order of a request's way.
    pub fn sums(&self) -> Vec<(&'static str, u64)> {
        let sums = self.by(part);
        names().map(|name| (name, sums.get(name).copied().unwrap_or(0))).collect()
    }

    fn by<'a, K: Ord>(&'a self, key: impl Fn(&'a Origin) -> K) -> BTreeMap<K, u64> {
        sums_of(&self.origins, key)
    }

    /// Writes [`Parts::text`] to a file of `directory`, `instructions-OF.txt`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn save(&self, directory: &Path, of: &str, requests: u64) -> Result<()> {
        save(&directory.join(format!("instructions-{of}.txt")), self.text(requests).as_bytes())
    }

    /// For a person: by part, file, and function, with what was inlined apart and within, and those that lock
    /// memory; each for one of `requests`, the largest first.
    pub fn text(&self, requests: u64) -> String {
        let each = |count: u64| count as f64 / requests.max(1) as f64;
        let mut text = String::from("parts\n");
        for (name, count) in self.sums() {
            text += &format!("{:10.1}  {name}\n", each(count));
        }
        let lists = [
            ("files", self.by(|origin| origin.file.clone())),
            (
                "functions, inlined ones apart",
                self.by(|origin| format!("{} {}", origin.file, origin.function)),
            ),
            ("functions, with what is inlined", self.by(|origin| origin.symbol.clone())),
        ];
        let locked = sums_of(&self.locked, |origin| {
            format!("{} {}, in {}", origin.file, origin.function, origin.symbol)
        });
        let lists = lists.into_iter().map(|(title, sums)| (title, sums, 1.0));
        for (title, sums, least) in lists.chain([("that lock memory", locked, 0.01)]) {
            text += &format!("\n{title}\n");
            let mut sums: Vec<_> = sums.into_iter().collect();
            sums.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            for (name, count) in sums.into_iter().filter(|(_, count)| each(*count) >= least) {
                let digits = if least < 1.0 { 2 } else { 1 };
                text += &format!("{:10.digits$}  {name}\n", each(count));
            }
        }
        text
    }
}

/// Adds up what has the same key.
fn sums_of<'a, K: Ord>(origins: &'a [(Origin, u64)], key: impl Fn(&'a Origin) -> K) -> BTreeMap<K, u64> {
    let mut sums = BTreeMap::new();
    for (origin, count) in origins {
        *sums.entry(key(origin)).or_default() += count;
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn blocks_are_added_up() {
        let high = 0xffff_ffff_8010_0000;
        let file = words(&[3, 2, 16, high ^ LOCKED, 4, 2, 20 ^ LOCKED, 16, 0, 0, 0]);
        let executed = Executed::read(&file);
        assert_eq!(executed.counts, [(16, 7), (20, 4), (high, 3)].into());
        assert_eq!(executed.locked(), 7);
        let earlier = Executed::read(&words(&[3, 2, 16, high ^ LOCKED]));
        let since = executed.since(&earlier);
        assert_eq!((since.counts.clone(), since.locked()), ([(16, 4), (20, 4)].into(), 4));
    }

    #[test]
    fn names_are_told_without_their_types() {
        assert_eq!(last_name("parse"), "parse");
        assert_eq!(last_name("cut<a::B<C>>"), "cut");
        assert_eq!(last_name("<a::B<C>>::take::<d::E<F>>"), "take");
        assert_eq!(last_name("a::b::sum"), "sum");
    }

    #[test]
    fn an_instruction_is_the_innermost_of_nom() {
        let said = "0x10\nindex<u8>\n/rust/library/core/src/slice/index.rs:89\nparse<B>\n\
                    /x/libos/net/src/tcp/segment.rs:7 (discriminator 2)\nframe\n\
                    /x/libos/net/src/stack/mod.rs:9\n\
                    0x20\nmemcpy\n??:?\n";
        let origins = origins(said);
        assert_eq!(origins[0].file, "libos/net/src/tcp/segment.rs");
        assert_eq!((&*origins[0].function, &*origins[0].symbol), ("parse", "frame"));
        assert_eq!((&*origins[1].file, &*origins[1].symbol), ("library", "memcpy"));
        let locked = vec![(origins[0].clone(), 3)];
        let parts = Parts { origins: origins.into_iter().zip([40, 2]).collect(), locked };
        let sums: Vec<_> = parts.sums().into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(sums, [("tcp_in", 40), (LIBRARY, 2)]);
        assert!(parts.text(2).contains("      20.0  libos/net/src/tcp/segment.rs parse\n"));
        let text = parts.text(2);
        assert!(text.ends_with("memory\n      1.50  libos/net/src/tcp/segment.rs parse, in frame\n"));
    }
}
