//! The one table of a manifest's fields: parser and documentation are both made from it.

use super::Port;
use super::utility::{RawUtility, UTILITY};
use super::values::{
    CallBit, Class, Clients, Cores, Count, Micros, Name, PciId, RegionSize, Scalar, Service, Size, Text,
    Variable, Weight,
};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use toml::Spanned;

/// One row of the documentation.
pub(super) struct Field {
    pub name: &'static str,
    pub expected: &'static str,
    pub default: &'static str,
    pub text: &'static str,
}

macro_rules! fields {
    ($(#[doc = $about:literal])+ $table:ident {
        $($(#[doc = $doc:literal])+ $name:ident: $type:ty, $expected:expr, $default:literal;)+
    }) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(super) struct $table { $($(#[doc = $doc])+ pub $name: Option<Spanned<$type>>,)+ }

        impl $table {
            /// Every field with its documentation, in the order of the documentation page.
            pub const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($name),
                expected: $expected,
                default: $default,
                text: concat!($($doc),+),
            },)+];
        }
    };
}

fields! {
    /// An application as one file or one entry of a bundle gives it: nothing is required here, since
    /// other layers may give it.
    RawApplication {
        /// The application's name, unique in its bundle. Peers, managers, `nom ps` and the log use it.
        name: Name, Name::EXPECTED, "required";
        /// What it runs: a cargo package or binary, of the `Cargo.toml` beside the manifest that says so or
        /// else of nom's checkout; or, if it contains a `/`, the path of an ELF file (static PIE for x86-64),
        /// relative to that manifest.
        program: Text, "a package name, or a path with a `/`", "required";
        /// Strings that the application reads as its arguments. Its name is not one of them.
        arguments: Vec<Text>, "a list of strings without zero bytes", "`[]`";
        /// Environment variables. Variables of inherited files stay unless set anew here.
        environment: BTreeMap<Variable, Text>, "a table of strings", "`{}`";
        /// Most cores that it may hold at a time.
        cores: Cores, Cores::EXPECTED, "64: all";
        /// Most memory that it may hold: program, stack, page tables and all that it is granted.
        memory: Size, Size::EXPECTED, "`\"64MiB\"`";
        /// Size of its stack, on each core that it runs on.
        stack: RegionSize, RegionSize::EXPECTED, "`\"256KiB\"`";
        /// Its share of a core that others want too: twice the weight, twice the time.
        weight: Weight, Weight::EXPECTED, "`100`";
        /// Whether it is started at boot. Otherwise an application that manages it starts it.
        autostart: bool, "`true` or `false`", "`true`";
        /// Whether the machine ends, with its status, when it ends, though others may still run.
        essential: bool, "`true` or `false`", "`false`";
        /// What its owner is paid for what it serves, see below. The application adapts itself to earn most.
        utility: RawUtility, UTILITY, "none: nothing is earned";
        /// Whose clients and requests are whose, see below: what each costs is told apart.
        activity: Vec<RawActivity>, "a list of tables", "none: nobody is told apart";
        /// Which scheduler stands before which resource, see below: who of `activity` is served before whom.
        grid: RawGrid, "a table of tables", "none: all are served as they come";
        /// Responses that were measured beforehand, with which its controller begins; see `docs/earn.md`.
        responses: PathBuf, "a path relative to the manifest that says so", "none: all is learned";
        /// Directory of files that go along with it, see below.
        files: PathBuf, "a path relative to the manifest that says so", "none";
        /// Whether it is the one application of its bundle that puts prices on the bulletin board.
        publishes_prices: bool, "`true` or `false`", "`false`";
        /// Whether it may make code: map memory that it writes, or another way, as executable. Without, only
        /// its program can be executed.
        makes_code: bool, "`true` or `false`", "`false`";
        /// Whether it monitors: what every application of its bundle uses (cores, memory, cycles) is shown to
        /// it, and not only what it uses itself and those that it manages.
        monitors: bool, "`true` or `false`", "`false`";
        /// System calls that it may make, by the names in `docs/abi.md`; others answer NotPermitted.
        calls: Vec<CallBit>, "a list of names", "those that its program contains";
        /// PCI devices that it may acquire, see below.
        devices: Vec<RawDevice>, "a list of tables", "`[]`";
        /// Channels to other applications of the bundle, see below.
        peers: Vec<RawPeer>, "a list of tables", "`[]`";
        /// Applications of the bundle that it may start and end.
        manages: Vec<Spanned<Name>>, "a list of names", "`[]`";
        /// Ports of the host that `nom run` forwards to the machine, where they are free. `-p` of the same
        /// port of the machine goes before.
        ports: Vec<Port>, "a list of strings `[ADDRESS:]HOST:GUEST[/udp]`", "`[]`";
        /// Manifests, relative to this one, whose fields hold where this one says nothing. A later one of
        /// the list goes before an earlier one.
        inherit: Vec<Spanned<PathBuf>>, "a list of paths", "`[]`";
        /// Only in an entry of a bundle: the application's manifest, which the entry's other fields override.
        file: PathBuf, "a path relative to the bundle's file", "none";
    }
}

fields! {
    /// An entry of `devices`. What is not given matches every device.
    RawDevice {
        /// Kind of device: a name or a PCI class code. `"entropy"` is the virtio entropy device.
        class: Class, Class::EXPECTED, "any";
        /// PCI vendor.
        vendor: PciId, PciId::EXPECTED, "any";
        /// PCI device.
        device: PciId, PciId::EXPECTED, "any";
    }
}

fields! {
    /// An entry of `peers`. The application that lists the peer is end 0 of the channel, the peer end 1.
    RawPeer {
        /// Name of the other application. It does not list the channel itself.
        name: Name, Name::EXPECTED, "required";
        /// Size of the shared memory.
        bytes: RegionSize, RegionSize::EXPECTED, "`\"64KiB\"`";
    }
}

fields! {
    /// An entry of `activity`. What is not given holds of everybody.
    RawActivity {
        /// The activity; several entries may name the same.
        name: Text, "printable ASCII characters without spaces, `;`, `\"`, `=` and `\\`", "required";
        /// The port of the machine at which the client asks.
        port: Service, Service::EXPECTED, "any";
        /// Where the client is.
        clients: Clients, Clients::EXPECTED, "anywhere";
        /// The site that is asked for, as HTTP's `Host` names it, without a port.
        host: Text, "a string without spaces and `;`", "any";
        /// What the path of the page begins with, decoded as files are named.
        path: Text, "a string without spaces and `;`", "any";
        /// What the key begins with, of memcached's commands; of several keys, the first.
        key: Text, "a string without spaces and `;`", "any";
        /// Its share where a scheduler of `grid` goes by weight (`fair`, `profit`): its weight over those of
        /// all that want something.
        weight: Count, Count::EXPECTED, "100";
        /// How long what comes may wait where a scheduler of `grid` goes by deadlines, in microseconds.
        deadline: Count, Count::EXPECTED, "a second";
        /// How much it may get a second where a scheduler of `grid` limits the rate, in units of its metric:
        /// nanoseconds, bytes or messages. A tenth of it may come at once.
        rate: Count, Count::EXPECTED, "as much as can be";
        /// What a million units of the metric earn, in billionths of a dollar, where a scheduler of `grid`
        /// goes by profit: whoever earns most is served first.
        earns: Count, Count::EXPECTED, "what its contract (`utility`) pays, as it is measured, if it has one";
        /// The group of `grid` that it is in: it shares what all of that get, as the group's scheduler says.
        group: Text, "a `name` of a `group` of `grid`", "none: it stands beside the groups";
        /// How many clients it may have at a time, on each core; more are turned away.
        connections: Count, Count::EXPECTED, "as many as there is room for";
        /// How much memory its clients' connections may hold, on each core: 1 KiB each, answers that they
        /// have not read (of a file of nhttpd, what is on its way), requests that wait behind those, and
        /// what came of requests that are not whole. Who asks when it is used up is turned away.
        memory: Size, Size::EXPECTED, "as much as there is";
        /// How long its packets may be held to batch them, in microseconds: 0 for those that are to leave at
        /// once.
        batching_delay: Micros, Micros::EXPECTED, "the batching delay W, which it is at most";
        /// What its users pay, as the field `utility` of the application says it; what is served for it is
        /// then not paid for by that.
        utility: RawUtility, UTILITY, "they pay as the application's do";
    }
}

fields! {
    /// The table `grid`: the resources that a scheduler can stand before.
    RawGrid {
        /// Frames that came, once it is known for whom: TCP, UDP and what the application does with them.
        input: RawResource, "a table, see below", "all are served as they come";
        /// A core, which tasks and threads share; of schedulers it has `fair`.
        cpu: RawResource, "a table, see below", "all have the same weight";
        /// Groups of activities, see below: the scheduler before `input` chooses between groups, and one in
        /// each between its activities.
        group: Vec<RawGroup>, "a list of tables", "none: it chooses between activities";
    }
}

fields! {
    /// An entry of `group` in the table `grid`.
    RawGroup {
        /// The group, as an activity's field `group` names it.
        name: Text, "printable ASCII characters without spaces, `;`, `\"`, `=` and `\\`", "required";
        /// Who says which of its activities is served next.
        scheduler: Text, "`\"round-robin\"`, `\"fair\"`, `\"rate\"` or `\"profit\"`", "required";
        /// What is shared out between them, or limited.
        metric: Text, "`\"time\"`, `\"bytes\"`, `\"sent\"` or `\"messages\"`", "`\"time\"`";
        /// The weight of all of it, where the scheduler before `input` goes by weight.
        weight: Count, Count::EXPECTED, "100";
        /// How much all of it may get a second, where that limits the rate, in units of its metric.
        rate: Count, Count::EXPECTED, "as much as can be";
    }
}

/// What a scheduler can be.
const SCHEDULERS: &str = "`\"round-robin\"`, `\"fair\"`, `\"deadline\"`, `\"rate\"` or `\"profit\"`";

fields! {
    /// A resource in the table `grid`.
    RawResource {
        /// Who says what is served next: each in its turn, by weight, whoever is due first, no faster than a
        /// rate, or whoever earns most.
        scheduler: Text, SCHEDULERS, "required";
        /// What is shared out, or limited: time of the core, bytes of what came, bytes of frames that were
        /// sent for it, or frames that came.
        metric: Text, "`\"time\"`, `\"bytes\"`, `\"sent\"` or `\"messages\"`", "`\"time\"`";
        /// How many messages a decision is for.
        batching: Count, Count::EXPECTED, "4";
        /// How many messages may wait for each activity; more are lost.
        queue: Count, Count::EXPECTED, "128";
    }
}
