//! Which system calls a program can make, by its code and that of its libraries.
//!
//! What can be reached is: all of the program, and of libraries that it may load while it runs; of its
//! interpreter and the libraries that it names, what these lead to, function by function, by calls, jumps,
//! names and addresses that are taken, in code or in data. A function that makes the call whose number it is
//! given (`syscall` of C libraries, and what Go's runtime has) makes those that it is given.
//!
//! So a call that the program makes is missing only where its number comes out of memory, which is said, or
//! where code is made or loaded that was not there; and a call may be among these that the program never
//! makes, since nobody knows what it does with its functions.

mod code;
mod object;

use crate::error::Result;
use crate::root::Root;
use code::{CodeUse, Effects, Item};
use object::{ElfObject, Word};
use std::collections::{BTreeMap, BTreeSet};

/// Numbers of calls that are believed: more is an error code or a mask.
const NUMBER_MAX: u64 = 1023;

/// What a program can ask Linux for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsFound {
    /// Numbers of calls, and a function that makes each, with its file.
    pub calls: BTreeMap<u32, String>,
    /// Functions that make calls whose numbers could not be found out.
    pub unknown: BTreeSet<String>,
    /// Files that were read: the program first, its interpreter and libraries, and what else has code.
    pub files: Vec<String>,
}

impl Root {
    /// Which calls a program of the root can make.
    ///
    /// # Errors
    /// If it is no program, or a file of it is damaged.
    pub fn calls(&self, program: &str) -> Result<CallsFound> {
        let (named, others) = self.code_files(program)?;
        let mut objects = Vec::new();
        for path in named.iter().chain(&others) {
            objects.push(ElfObject::read(path, &self.contents(path)?)?);
        }
        let mut search = Search::new(&objects);
        for (number, object) in objects.iter().enumerate() {
            // The program, and what is loaded by those that know what they look for.
            let is_whole = number == 0 || number >= named.len();
            match is_whole {
                true => object.functions().for_each(|function| search.reach(number, function)),
                false => search.reach(number, object.entry),
            }
        }
        Ok(search.found(named.iter().chain(&others).cloned().collect()))
    }
}

/// A function: its object and its address.
type Function = (usize, u64);

/// A search for calls.
struct Search<'o> {
    objects: &'o [ElfObject],
    /// Who offers a name first, in the order in which they are loaded.
    offers: BTreeMap<&'o str, Vec<Function>>,
    reached: BTreeMap<Function, Effects>,
    /// What is to be looked at.
    next: Vec<Function>,
    /// Objects whose data is in use.
    used: BTreeSet<usize>,
}

impl<'o> Search<'o> {
    fn new(objects: &'o [ElfObject]) -> Search<'o> {
        let mut offers: BTreeMap<&str, Vec<Function>> = BTreeMap::new();
        for (number, object) in objects.iter().enumerate() {
            for (name, places) in &object.exports {
                let places = places.iter().map(|place| (number, *place));
                offers.entry(name).or_insert_with(|| places.collect());
            }
        }
        Search { objects, offers, reached: BTreeMap::new(), next: Vec::new(), used: BTreeSet::new() }
    }

    /// Code at an address is used: its function, and what is in its object's data.
    fn reach(&mut self, object: usize, address: u64) {
        if let Some(start) = self.objects[object].function_at(address) {
            self.next.push((object, start));
            if self.used.insert(object) {
                let pointed = self.objects[object].pointed.iter().map(|function| (object, *function));
                self.next.extend(pointed);
            }
        }
    }

    /// The functions that a use leads to.
    fn targets(&self, object: usize, to: u64) -> Vec<Function> {
        let own = &self.objects[object];
        match own.words.get(&to) {
            Some(Word::Named(name)) => self.offers.get(name.as_str()).cloned().unwrap_or_default(),
            Some(Word::Own(address)) => vec![(object, *address)],
            None => vec![(object, to)],
        }
    }

    fn follow(&mut self) {
        while let Some((object, start)) = self.next.pop() {
            if self.reached.contains_key(&(object, start)) {
                continue;
            }
            let effects = code::read(self.objects[object].bytes(start), start);
            for place in &effects.uses {
                for (there, address) in self.targets(object, place.to) {
                    self.reach(there, address);
                }
            }
            self.reached.insert((object, start), effects);
        }
    }

    fn name(&self, (object, start): Function) -> String {
        self.objects[object].name(start)
    }

    /// What can be made, by all that is reached.
    fn found(mut self, files: Vec<String>) -> CallsFound {
        self.follow();
        let mut found = CallsFound { files, ..CallsFound::default() };
        // Functions that make the call that one of their arguments says, and which argument.
        let mut givers: BTreeSet<(Function, u8)> = BTreeSet::new();
        for (function, effects) in &self.reached {
            for (_, number) in &effects.calls {
                self.note(&mut found, &mut givers, *function, number);
            }
        }
        let uses = self.uses();
        let mut given = BTreeSet::new();
        loop {
            let before = givers.len();
            for (giver, argument) in givers.clone() {
                for (caller, place) in uses.get(&giver).into_iter().flatten() {
                    given.insert((giver, argument));
                    let value = place.arguments[usize::from(argument)];
                    self.note(&mut found, &mut givers, *caller, &value);
                }
            }
            if givers.len() == before {
                break;
            }
        }
        // Nobody was seen to call it, so that nothing is known of what it is given.
        let lonely = givers.difference(&given).map(|(function, _)| self.name(*function));
        found.unknown.extend(lonely);
        found
    }

    /// Who leads to whom, and how.
    fn uses(&self) -> BTreeMap<Function, Vec<(Function, &CodeUse)>> {
        let mut uses: BTreeMap<Function, Vec<(Function, &CodeUse)>> = BTreeMap::new();
        for (caller, effects) in &self.reached {
            for place in &effects.uses {
                for (object, address) in self.targets(caller.0, place.to) {
                    let start = self.objects[object].function_at(address);
                    if let Some(start) =
                        start.filter(|start| *start == address && (object, *start) != *caller)
                    {
                        uses.entry((object, start)).or_default().push((*caller, place));
                    }
                }
            }
        }
        uses
    }

    /// A function makes the calls of these numbers.
    fn note(
        &self,
        found: &mut CallsFound,
        givers: &mut BTreeSet<(Function, u8)>,
        function: Function,
        number: &code::Value,
    ) {
        if number.is_anything() {
            found.unknown.insert(self.name(function));
        }
        for item in number.items() {
            match item {
                Item::Argument(argument) => drop(givers.insert((function, argument))),
                Item::Constant(number) if number <= NUMBER_MAX => {
                    found.calls.entry(number as u32).or_insert_with(|| self.name(function));
                }
                Item::Constant(_) => drop(found.unknown.insert(self.name(function))),
            }
        }
    }
}
