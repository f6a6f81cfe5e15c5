//! Programs from the tree of files into memory: execve(2).

use crate::calls::identities::Identities;
use crate::elf::{BadProgram, HEADER_BYTES, Header, Program, SCRIPT_LINE_MAX, script};
use crate::memory::{Backing, Contents, FilePart, MappedRegion, PAGE, Purpose, Rights, Sharing, Where};
use crate::process::{OwnMemory, Process, RunningProgram};
use crate::stack::{self, Auxiliary};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;
use linux_raw_sys::auxvec as at;
use linux_raw_sys::general::{S_ISGID, S_ISUID, S_IXGRP};
use nom_fs::{Errno, NodeId, Vfs};
use nom_sys::abi::layout::APPLICATION_END;
use nom_sys::abi::upcall::Registers;

/// Bytes of the first stack, of which pages come when they are touched.
const STACK_BYTES: u64 = 8 << 20;
/// Scripts whose interpreters are scripts, at most, as on Linux.
const SCRIPTS_MAX: usize = 4;
/// Most bytes of arguments and environment, a quarter of the stack, as on Linux.
pub(crate) const STRINGS_MAX: usize = STACK_BYTES as usize / 4;
/// How far what is placed at random may be from where it could be: 1 GiB.
const SPREAD_PAGES: u64 = 1 << 18;

/// Why a program cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// The file cannot be read: which, and why.
    File(Vec<u8>, Errno),
    /// The file is no program for this machine.
    Bad(Vec<u8>, BadProgram),
    /// Its interpreter is missing: the program, the interpreter.
    NoInterpreter(Vec<u8>, Vec<u8>),
    /// Scripts name scripts as their interpreters, without end.
    TooManyScripts(Vec<u8>),
    /// Arguments and environment are too long.
    TooLong,
    /// No memory, or no room at the addresses that it must have.
    NoMemory,
}

impl fmt::Display for LoadError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| alloc::string::String::from_utf8_lossy(bytes).into_owned();
        match self {
            LoadError::File(path, errno) => write!(out, "{}: {errno}", text(path)),
            LoadError::Bad(path, why) => write!(out, "{}: {why}", text(path)),
            LoadError::NoInterpreter(path, interpreter) => {
                let (path, interpreter) = (text(path), text(interpreter));
                write!(out, "{path} needs the interpreter {interpreter}, which is not among the files")
            }
            LoadError::TooManyScripts(path) => {
                write!(out, "{}: its interpreter is a script, whose is a script, and so on", text(path))
            }
            LoadError::TooLong => write!(out, "arguments and environment have more than {STRINGS_MAX} bytes"),
            LoadError::NoMemory => out.write_str("there is no memory, or no room at its addresses"),
        }
    }
}

impl core::error::Error for LoadError {}

impl LoadError {
    /// As `execve` says it.
    pub fn errno(&self) -> Errno {
        match self {
            LoadError::File(_, errno) => *errno,
            LoadError::Bad(..) => Errno::ENOEXEC,
            LoadError::NoInterpreter(..) => Errno::ENOENT,
            LoadError::TooManyScripts(_) => Errno::ELOOP,
            LoadError::TooLong => Errno::E2BIG,
            LoadError::NoMemory => Errno::ENOMEM,
        }
    }
}

/// A program that was loaded.
#[derive(Clone)]
pub struct Loaded {
    /// Its memory.
    pub memory: Rc<OwnMemory>,
    /// With which it begins.
    pub registers: Registers,
    /// What is known of it from now on.
    pub program: RunningProgram,
    /// As whom it runs.
    pub(crate) users: Identities,
    pub(crate) groups: Identities,
}

/// A file of the tree, held open: what is mapped of it.
pub struct Opened {
    vfs: Rc<RefCell<Vfs>>,
    node: NodeId,
    path: Vec<u8>,
}

impl Opened {
    /// Holds a file.
    pub fn hold(vfs: &Rc<RefCell<Vfs>>, node: NodeId, path: Vec<u8>) -> Opened {
        vfs.borrow_mut().hold(node);
        Opened { vfs: vfs.clone(), node, path }
    }

    /// Which file it is.
    pub fn node(&self) -> NodeId {
        self.node
    }
}

impl fmt::Debug for Opened {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Opened({:?})", self.node)
    }
}

impl Contents for Opened {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, Errno> {
        self.vfs.borrow().read(self.node, offset, bytes)
    }

    fn len(&self) -> u64 {
        self.vfs.borrow().size(self.node).unwrap_or(0)
    }

    fn unchanging(&self) -> Option<&'static [u8]> {
        self.vfs.borrow().packed(self.node)
    }

    fn first_name(&self) -> Option<u64> {
        self.vfs.borrow().first_name(self.node)
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.vfs.borrow_mut().release(self.node);
    }
}

/// Loads the program at `path`, for a process.
pub(crate) fn load(
    process: &Process,
    thread: u32,
    path: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
) -> Result<Loaded, LoadError> {
    let bytes: usize = arguments.iter().chain(environment).map(|string| string.len() + 1 + 8).sum();
    if bytes > STRINGS_MAX {
        return Err(LoadError::TooLong);
    }
    let (file, arguments) = resolve(process, thread, path, arguments)?;
    let program = parse(&file)?;
    let memory = OwnMemory::new(&process.family).ok_or(LoadError::NoMemory)?;
    let before = process.memory();
    if !before.takes_large() {
        memory.refuse_large();
    }
    // Those of a parent's memory, which it shares until now, are the parent's.
    if process.has_own_memory.get() {
        memory.count_on(before.faults());
    }
    // The heap behind it has room to grow; what is mapped later comes from above.
    let space = memory.place();
    let wish = space.start + (space.end - space.start) / 4 + process.family.random(SPREAD_PAGES) * PAGE;
    let base = place(&memory, &file, &program, Some(wish))?;
    let end = base + program.pages().end;
    memory.set_heap(end + process.family.random(SPREAD_PAGES / 64) * PAGE);
    let interpreter = match &program.interpreter {
        None => None,
        Some(name) => {
            let mut bytes = vec![0; (name.end - name.start) as usize];
            let read = file.read_at(name.start, &mut bytes);
            read.map_err(|errno| LoadError::File(file.path.clone(), errno))?;
            let missing = || LoadError::NoInterpreter(file.path.clone(), bytes.clone());
            let interpreter = open(process, thread, &bytes).map_err(|_| missing())?;
            let parsed = parse(&interpreter)?;
            let base = place(&memory, &interpreter, &parsed, None)?;
            Some((base, base.wrapping_add(parsed.entry)))
        }
    };
    let (users, groups) = identities(process, thread, &file);
    let mut auxiliary = auxiliary(process, &file, &program, base, interpreter.map(|(base, _)| base));
    auxiliary.extend(told_identities(users, groups));
    auxiliary.push((at::AT_SYSINFO_EHDR, Auxiliary::Word(place_vdso(process, &memory)?)));
    let (pointer, auxiliary) = first_stack(process, &memory, &arguments, environment, &auxiliary)?;
    let entry = interpreter.map_or(base.wrapping_add(program.entry), |(_, entry)| entry);
    if entry >= APPLICATION_END {
        let why = BadProgram::Wrong("it begins where no program may be");
        return Err(LoadError::Bad(file.path.clone(), why));
    }
    let registers = Registers { rip: entry, rsp: pointer, ..Registers::default() };
    let (path, environment) = (file.path.clone(), environment.to_vec());
    let program = RunningProgram { path, file: Some(file), arguments, environment, auxiliary };
    Ok(Loaded { memory, registers, program, users, groups })
}

/// The program's file, and its arguments: those of the interpreter, if it is a script.
fn resolve(
    process: &Process,
    thread: u32,
    path: &[u8],
    arguments: &[Vec<u8>],
) -> Result<(Rc<Opened>, Vec<Vec<u8>>), LoadError> {
    let (mut path, mut arguments) = (path.to_vec(), arguments.to_vec());
    for _ in 0..=SCRIPTS_MAX {
        let file = open(process, thread, &path)?;
        let mut line = [0; SCRIPT_LINE_MAX];
        let count = file.read_at(0, &mut line).map_err(|errno| LoadError::File(path.clone(), errno))?;
        let Some(script) = script(&line[..count]) else { return Ok((file, arguments)) };
        let rest = arguments.split_off(arguments.len().min(1));
        arguments = vec![script.interpreter.clone()];
        arguments.extend(script.argument);
        arguments.push(path);
        arguments.extend(rest);
        path = script.interpreter;
    }
    Err(LoadError::TooManyScripts(path))
}

fn open(process: &Process, thread: u32, path: &[u8]) -> Result<Rc<Opened>, LoadError> {
    let opened = process.with_vfs(thread, |vfs, caller| {
        let node = vfs.open_program(caller, caller.directory, path)?;
        Ok((node, vfs.path_of(caller.root, node)))
    });
    let (node, whole) = opened.map_err(|errno| LoadError::File(path.to_vec(), errno))?;
    Ok(Rc::new(Opened { vfs: process.family.vfs.clone(), node, path: whole }))
}

fn parse(file: &Opened) -> Result<Program, LoadError> {
    let bad = |why| LoadError::Bad(file.path.clone(), why);
    let read = |offset, bytes: &mut [u8]| {
        file.read_at(offset, bytes).map_err(|errno| LoadError::File(file.path.clone(), errno))
    };
    let mut head = [0; HEADER_BYTES];
    let count = read(0, &mut head)?;
    let header = Header::parse(&head[..count]).map_err(bad)?;
    let (offset, length) = header.table();
    let mut table = vec![0; length];
    let count = read(offset, &mut table)?;
    header.program(&table[..count], file.len()).map_err(bad)
}

/// Maps a program's segments, near `wish` if it may be anywhere, and returns its base.
fn place(
    memory: &OwnMemory,
    file: &Rc<Opened>,
    program: &Program,
    wish: Option<u64>,
) -> Result<u64, LoadError> {
    let no_room = |_| LoadError::NoMemory;
    let pages = program.pages();
    let bytes = pages.end - pages.start;
    let none = MappedRegion::zeros(Rights::NONE);
    let base = match wish {
        _ if !program.is_movable => {
            memory.map(Where::AtIfFree(pages.start), bytes, none).map_err(no_room)?;
            0
        }
        Some(wish) => {
            let wish = wish.next_multiple_of(program.align);
            memory.map(Where::AtIfFree(wish), bytes, none).map_err(no_room)? - pages.start
        }
        None => memory.map(Where::Near(0), bytes, none).map_err(no_room)? - pages.start,
    };
    for segment in &program.segments {
        let into = segment.address % PAGE;
        let backing = if segment.file_bytes == 0 {
            Backing::Zero
        } else {
            let contents = file.clone() as Rc<dyn Contents>;
            let (offset, bytes) = (segment.offset - into, segment.file_bytes + into);
            Backing::File(FilePart { contents, offset, bytes })
        };
        let (rights, sharing) = (segment.rights, Sharing::Private);
        let region = MappedRegion { sharing, backing, ..MappedRegion::zeros(rights) };
        let bytes = segment.memory_bytes + into;
        memory.map(Where::At(base + segment.address - into), bytes, region).map_err(no_room)?;
    }
    Ok(base)
}

fn auxiliary(
    process: &Process,
    file: &Opened,
    program: &Program,
    base: u64,
    interpreter: Option<u64>,
) -> Vec<(u32, Auxiliary)> {
    use Auxiliary::{Bytes, Word};
    /// Programs may use RDFSBASE and its like.
    const HWCAP2_FSGSBASE: u64 = 1 << 1;
    let random: Vec<u8> = (0..2).flat_map(|_| process.family.random(u64::MAX).to_le_bytes()).collect();
    vec![
        (at::AT_PHDR, Word(program.table.map_or(0, |table| base + table))),
        (at::AT_PHENT, Word(56)),
        (at::AT_PHNUM, Word(program.table_entries.into())),
        (at::AT_PAGESZ, Word(PAGE)),
        (at::AT_BASE, Word(interpreter.unwrap_or(0))),
        (at::AT_FLAGS, Word(0)),
        (at::AT_ENTRY, Word(base + program.entry)),
        (at::AT_CLKTCK, Word(100)),
        (at::AT_HWCAP, Word(core::arch::x86_64::__cpuid(1).edx.into())),
        (at::AT_HWCAP2, Word(HWCAP2_FSGSBASE)),
        (at::AT_RANDOM, Bytes(random)),
        (at::AT_PLATFORM, Bytes(b"x86_64".to_vec())),
        (at::AT_EXECFN, Bytes(file.path.clone())),
    ]
}

/// As which users and groups a program runs: as before, or if its file has a bit that says so, as the file's
/// (execve(2)); who it may be again is who it is then (credentials(7)).
fn identities(process: &Process, thread: u32, file: &Opened) -> (Identities, Identities) {
    let attributes = process.with_vfs(thread, |vfs, caller| vfs.attributes(caller, file.node));
    let permissions = attributes.as_ref().map_or(0, |attributes| attributes.permissions);
    let has = |bits: u32| permissions & bits == bits && !process.controls.gains_nothing();
    let becomes = |before: Identities, own: Option<u32>| {
        let effective = own.unwrap_or(before.effective);
        Identities { effective, saved: effective, ..before }
    };
    let own = attributes.as_ref().ok();
    let user = own.filter(|_| has(S_ISUID)).map(|attributes| attributes.user);
    // Without the group's right to execute it says something else, of locks.
    let group = own.filter(|_| has(S_ISGID | S_IXGRP)).map(|attributes| attributes.group);
    let view = process.view.borrow();
    (becomes(view.users(), user), becomes(view.groups(), group))
}

fn told_identities(users: Identities, groups: Identities) -> [(u32, Auxiliary); 5] {
    let is_secure = users.real != users.effective || groups.real != groups.effective;
    [
        (at::AT_UID, users.real),
        (at::AT_EUID, users.effective),
        (at::AT_GID, groups.real),
        (at::AT_EGID, groups.effective),
        (at::AT_SECURE, is_secure.into()),
    ]
    .map(|(name, value)| (name, Auxiliary::Word(value.into())))
}

/// Maps the image of functions that tell the time, and returns where it is.
fn place_vdso(process: &Process, memory: &OwnMemory) -> Result<u64, LoadError> {
    let contents = process.family.vdso.clone();
    let bytes = contents.mapped_bytes();
    let backing = Backing::File(FilePart { offset: 0, bytes: contents.len(), contents });
    let (rights, sharing) = (Rights::READ_EXECUTE, Sharing::Private);
    let region = MappedRegion { sharing, backing, purpose: Purpose::Vdso, ..MappedRegion::zeros(rights) };
    memory.map(Where::Near(0), bytes, region).map_err(|_| LoadError::NoMemory)
}

/// Makes the first stack, and returns the pointer into it, and the auxiliary vector as it lies there.
fn first_stack(
    process: &Process,
    memory: &OwnMemory,
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    auxiliary: &[(u32, Auxiliary)],
) -> Result<(u64, Vec<u8>), LoadError> {
    let region = MappedRegion { purpose: Purpose::Stack, ..MappedRegion::zeros(Rights::READ_WRITE) };
    let stack = memory.map(Where::Near(0), STACK_BYTES, region).map_err(|_| LoadError::NoMemory)?;
    let top = stack + STACK_BYTES - process.family.random(PAGE / 16) * 16;
    let first = stack::build(top, arguments, environment, auxiliary);
    memory.write(first.pointer, &first.bytes).map_err(|_| LoadError::NoMemory)?;
    Ok((first.pointer, first.bytes[first.auxiliary].to_vec()))
}
