//! From layers to the typed structure: defaults, names turned into indices, and what must hold between
//! applications.

use super::fields::{RawActivity, RawDevice, RawPeer};
use super::grid;
use super::layers::{Given, Layers};
use super::source::Source;
use super::utility;
use super::values::{Class, Name, Text, Variable};
use super::{Application, BundleManifest, Files, Mount, Peer, Places, Program};
use crate::error::{Error, Result};
use nom_abi::image::DeviceSelector;
use nom_abi::layout::{APPLICATIONS_MAX, CHANNELS_MAX, CORES_MAX};
use nom_economy::table::ResponseTable;
use nom_economy::utility::Utility;
use nom_service::{Rule, Rules};
use std::collections::{BTreeMap, BTreeSet};
use toml::Spanned;

const STACK_BYTES: u64 = 256 << 10;
/// Memory cap of an application that names none: the size of a machine that names none.
const MEMORY_BYTES: u64 = 64 << 20;
const CHANNEL_BYTES: u64 = 64 << 10;
const WEIGHT: u32 = 100;
/// Matches every PCI vendor or device, and every class.
const ANY_ID: u16 = 0xffff;
const ANY_CLASS: u32 = 0xff_ffff;
/// The virtio entropy device (virtio 1.2, section 4.1.2): transitional and modern.
const VIRTIO_VENDOR: u16 = 0x1af4;
const VIRTIO_ENTROPY: [u16; 2] = [0x1005, 0x1044];

/// The variable of the environment in which the application reads its table of responses.
const RESPONSES: &str = "responses";
/// The variable of the environment in which the application reads whose clients and requests are whose.
const ACTIVITIES: &str = "activity";
/// The variable that says what the users of activities pay.
const CONTRACTS: &str = "contracts";
/// The variable of the environment that says where its files are; set when they are packed.
pub(crate) const FILES: &str = "files";

type Index<'l> = BTreeMap<&'l Name, usize>;

pub(super) fn bundle(layers: &[Layers]) -> Result<BundleManifest> {
    let index = index(layers)?;
    let applications = layers.iter().map(|layers| application(layers, &index)).collect::<Result<Vec<_>>>()?;
    check_channels(layers, &applications)?;
    check_starts(layers, &applications)?;
    check_publisher(layers, &applications)?;
    Ok(BundleManifest { applications })
}

/// The applications by name; their order is the bundle's.
fn index(layers: &[Layers]) -> Result<Index<'_>> {
    let mut index = Index::new();
    for (number, layers) in layers.iter().enumerate() {
        let name = layers.require("name", |raw| &raw.name)?;
        if number == APPLICATIONS_MAX {
            return Err(name.error(format!("more than {APPLICATIONS_MAX} applications in one bundle")));
        }
        if index.insert(name.value(), number).is_some() {
            return Err(name.error(format!(
                "`name`: two applications are called `{}`, expected different names \
                 (an entry {{ file = .., name = .. }} of a bundle can give another)",
                name.value().0
            )));
        }
    }
    Ok(index)
}

fn application(layers: &Layers, index: &Index<'_>) -> Result<Application> {
    let name = layers.require("name", |raw| &raw.name)?.value();
    let (utility, responses, activities) = (utility(layers)?, responses(layers)?, activities(layers)?);
    let plan = grid::plan(layers, activities.as_ref())?;
    Ok(Application {
        name: name.0.clone(),
        program: program(layers)?,
        cores: layers.find(|raw| &raw.cores).map_or(CORES_MAX as u32, |cores| cores.value().0),
        memory: layers.find(|raw| &raw.memory).map_or(MEMORY_BYTES, |size| size.value().0),
        stack: layers.find(|raw| &raw.stack).map_or(STACK_BYTES, |size| size.value().0),
        weight: layers.find(|raw| &raw.weight).map_or(WEIGHT, |weight| weight.value().0),
        autostart: layers.find(|raw| &raw.autostart).is_none_or(|flag| *flag.value()),
        essential: layers.find(|raw| &raw.essential).is_some_and(|flag| *flag.value()),
        publishes_prices: layers.find(|raw| &raw.publishes_prices).is_some_and(|flag| *flag.value()),
        makes_code: layers.find(|raw| &raw.makes_code).is_some_and(|flag| *flag.value()),
        monitors: layers.find(|raw| &raw.monitors).is_some_and(|flag| *flag.value()),
        calls: layers
            .find(|raw| &raw.calls)
            .map(|calls| calls.value().iter().fold(0, |all, call| all | call.0)),
        arguments: list(layers.find(|raw| &raw.arguments), |text| text.0.clone()),
        environment: environment(
            layers,
            [
                (utility::VARIABLE, utility.as_ref().map(Utility::to_string)),
                (RESPONSES, responses.as_ref().map(ResponseTable::to_string)),
                (CONTRACTS, contracts(layers)?),
                (ACTIVITIES, activities.as_ref().map(Rules::to_string)),
                (grid::VARIABLE, (!plan.is_empty()).then(|| plan.to_string())),
            ],
        ),
        utility,
        files: files(layers)?,
        devices: devices(layers)?,
        peers: peers(layers, name, index)?,
        manages: manages(layers, name, index)?,
        ports: list(layers.find(|raw| &raw.ports), Clone::clone),
        places: Places {
            program: layers.place(|raw| &raw.program),
            memory: layers.place(|raw| &raw.memory),
            arguments: layers.place(|raw| &raw.arguments),
        },
    })
}

fn list<T, U>(given: Option<Given<'_, Vec<T>>>, convert: impl Fn(&T) -> U) -> Vec<U> {
    given.map_or_else(Vec::new, |given| given.value().iter().map(convert).collect())
}

fn program(layers: &Layers) -> Result<Program> {
    let given = layers.require("program", |raw| &raw.program)?;
    let text = &given.value().0;
    if text.is_empty() {
        return Err(given.error("`program`: empty, expected a package name, or a path with a `/`"));
    }
    Ok(match text.contains('/') {
        true => Program::File(given.source.relative(text)),
        false => Program::Package(text.clone()),
    })
}

/// What the manifests say, and `fields` that an application reads as variables.
fn environment(layers: &Layers, fields: [(&str, Option<String>); 5]) -> BTreeMap<String, String> {
    let tables = layers.each(|raw| &raw.environment).rev();
    let variables = tables.flat_map(|table| table.value());
    let given = variables.map(|(name, value)| (name.0.clone(), value.0.clone()));
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    given.chain(fields).collect()
}

fn utility(layers: &Layers) -> Result<Option<Utility>> {
    let Some(given) = layers.find(|raw| &raw.utility) else { return Ok(None) };
    not_by_hand(layers, utility::VARIABLE)?;
    given.value().utility().map(Some).map_err(|error| given.error(format!("`utility`: {error}")))
}

/// Whose clients and requests are whose.
fn activities(layers: &Layers) -> Result<Option<Rules>> {
    let Some(given) = layers.find(|raw| &raw.activity) else { return Ok(None) };
    not_by_hand(layers, ACTIVITIES)?;
    let text = |text: &Option<Spanned<Text>>| text.as_ref().map(|text| text.get_ref().0.clone());
    let rule = |raw: &RawActivity| {
        let name = text(&raw.name).ok_or_else(|| given.error("`activity`: an entry has no `name`"))?;
        let port = raw.port.as_ref().map(|port| port.get_ref().0);
        let clients = raw.clients.as_ref().map(|clients| clients.get_ref().0);
        let (host, path, key) = (text(&raw.host), text(&raw.path), text(&raw.key));
        Ok(Rule { name, port, clients, host, path, key })
    };
    let rules = given.value().iter().map(rule).collect::<Result<_>>()?;
    Rules::checked(rules).map(Some).map_err(|error| given.error(format!("`activity`: {error}")))
}

/// What the users of activities pay that have a contract of their own, on one line as the application reads
/// it: each says it once, in any of its entries.
fn contracts(layers: &Layers) -> Result<Option<String>> {
    let Some(given) = layers.find(|raw| &raw.activity) else { return Ok(None) };
    not_by_hand(layers, CONTRACTS)?;
    let mut all: Vec<(String, Utility)> = Vec::new();
    for raw in given.value() {
        let (Some(name), Some(utility)) = (&raw.name, &raw.utility) else { continue };
        let name = name.get_ref().0.clone();
        let wrong = |problem: String| {
            given.source.error(Some(utility.span()), format!("`activity`: `utility` of `{name}`: {problem}"))
        };
        if all.iter().any(|(other, _)| *other == name) {
            return Err(wrong("another of its entries has one, expected it once".to_owned()));
        }
        let utility = utility.get_ref().utility().map_err(|error| wrong(error.to_string()))?;
        all.push((name, utility));
    }
    let line =
        all.iter().map(|(name, utility)| format!("for {name} {utility}")).collect::<Vec<_>>().join("; ");
    Ok((!line.is_empty()).then_some(line))
}

/// The table of responses, from its own file.
fn responses(layers: &Layers) -> Result<Option<ResponseTable>> {
    let Some(given) = layers.find(|raw| &raw.responses) else { return Ok(None) };
    not_by_hand(layers, RESPONSES)?;
    let source = Source::read(&given.source.relative(given.value()))?;
    let table: ResponseTable = source.parse()?;
    table.check().map_err(|error| source.error(None, error.to_string()))?;
    Ok(Some(table))
}

/// The directory of files; it is read when they are packed.
fn files(layers: &Layers) -> Result<Option<Files>> {
    not_by_hand(layers, FILES)?;
    let Some(given) = layers.find(|raw| &raw.files) else { return Ok(None) };
    let mount = Mount { directory: given.source.relative(given.value()), at: "/".to_owned() };
    Ok(Some(Files { mounts: vec![mount], newest: None, root: None, on_disk: false }))
}

/// A variable that a field sets is not to be set in the environment, too.
pub(super) fn not_by_hand(layers: &Layers, variable: &str) -> Result<()> {
    let is_set =
        |table: &Given<'_, BTreeMap<Variable, Text>>| table.value().keys().any(|name| name.0 == variable);
    match layers.each(|raw| &raw.environment).find(is_set) {
        Some(table) => Err(table
            .error(format!("`environment.{variable}`: the field `{variable}` says it, expected it alone"))),
        None => Ok(()),
    }
}

fn devices(layers: &Layers) -> Result<Vec<DeviceSelector>> {
    let Some(given) = layers.find(|raw| &raw.devices) else {
        return Ok(Vec::new());
    };
    let selectors =
        given.value().iter().map(|device| selectors(device, &given)).collect::<Result<Vec<_>>>()?;
    Ok(selectors.concat())
}

fn selectors(device: &RawDevice, given: &Given<'_, Vec<RawDevice>>) -> Result<Vec<DeviceSelector>> {
    let id = |id: &Option<Spanned<super::values::PciId>>| id.as_ref().map_or(ANY_ID, |id| id.get_ref().0);
    let (vendor, product) = (id(&device.vendor), id(&device.device));
    let class = match device.class.as_ref().map(|class| (class, class.get_ref())) {
        Some((class, Class::Entropy)) if (vendor, product) != (ANY_ID, ANY_ID) => {
            let problem = "`devices`: class \"entropy\" names vendor and device itself, expected it alone";
            return Err(given.source.error(Some(class.span()), problem));
        }
        Some((_, Class::Entropy)) => {
            let selector = |device| DeviceSelector { vendor: VIRTIO_VENDOR, device, class: ANY_CLASS };
            return Ok(VIRTIO_ENTROPY.map(selector).to_vec());
        }
        Some((_, Class::Code(code))) => *code,
        None => ANY_CLASS,
    };
    Ok(vec![DeviceSelector { vendor, device: product, class }])
}

fn peers(layers: &Layers, own: &Name, index: &Index<'_>) -> Result<Vec<Peer>> {
    let Some(given) = layers.find(|raw| &raw.peers) else {
        return Ok(Vec::new());
    };
    let mut peers: Vec<Peer> = Vec::new();
    for raw in given.value() {
        let RawPeer { name, bytes } = raw;
        let name = name.as_ref().ok_or_else(|| given.error("`peers`: an entry has no `name`"))?;
        let peer = Peer {
            application: other("peers", name, &given, own, index)?,
            bytes: bytes.as_ref().map_or(CHANNEL_BYTES, |bytes| bytes.get_ref().0),
        };
        if peers.iter().any(|known| known.application == peer.application) {
            let problem = format!("`peers`: `{}` is listed twice", name.get_ref().0);
            return Err(given.source.error(Some(name.span()), problem));
        }
        peers.push(peer);
    }
    Ok(peers)
}

fn manages(layers: &Layers, own: &Name, index: &Index<'_>) -> Result<Vec<usize>> {
    let Some(given) = layers.find(|raw| &raw.manages) else {
        return Ok(Vec::new());
    };
    let numbers = given.value().iter().map(|name| other("manages", name, &given, own, index));
    Ok(numbers.collect::<Result<BTreeSet<_>>>()?.into_iter().collect())
}

/// Index of another application of the bundle that a field of application `own` names.
fn other<T>(
    field: &str,
    name: &Spanned<Name>,
    given: &Given<'_, T>,
    own: &Name,
    index: &Index<'_>,
) -> Result<usize> {
    let error = |problem: String| given.source.error(Some(name.span()), format!("`{field}`: {problem}"));
    let wanted = name.get_ref();
    let others = || index.keys().filter(|key| **key != own).map(|key| format!("`{}`", key.0));
    match index.get(wanted) {
        Some(_) if wanted == own => Err(error(format!("`{}` is the application itself", own.0))),
        Some(&number) => Ok(number),
        None if index.len() == 1 => {
            Err(error(format!("`{}` is unknown, `{}` is alone in this bundle", wanted.0, own.0)))
        }
        None => {
            let known = others().collect::<Vec<_>>().join(", ");
            Err(error(format!("`{}` is unknown, expected one of {known}", wanted.0)))
        }
    }
}

fn check_channels(layers: &[Layers], applications: &[Application]) -> Result<()> {
    let mut count = 0;
    for (number, application) in applications.iter().enumerate() {
        let error = |problem: String| match layers[number].find(|raw| &raw.peers) {
            Some(given) => given.error(problem),
            None => Error::TooLarge(problem),
        };
        for peer in &application.peers {
            count += 1;
            let other = &applications[peer.application];
            if count > CHANNELS_MAX {
                return Err(error(format!("`peers`: more than {CHANNELS_MAX} channels in one bundle")));
            }
            if peer.application < number && other.peers.iter().any(|back| back.application == number) {
                let (one, two) = (&application.name, &other.name);
                let problem = format!(
                    "`peers`: `{one}` and `{two}` list each other, expected only one of them to \
                     list the channel"
                );
                return Err(error(problem));
            }
        }
    }
    Ok(())
}

/// Every application must have a way to start.
fn check_starts(layers: &[Layers], applications: &[Application]) -> Result<()> {
    let managed: BTreeSet<usize> = applications.iter().flat_map(|a| a.manages.iter().copied()).collect();
    for (number, application) in applications.iter().enumerate() {
        if !application.autostart && !managed.contains(&number) {
            let place = layers[number].place(|raw| &raw.autostart);
            let problem = format!(
                "`autostart`: `{}` can never start, expected `true` or an application that manages it",
                application.name
            );
            return Err(Error::Manifest { place, problem });
        }
    }
    if applications.iter().all(|application| !application.autostart) {
        let place = layers[0].place(|raw| &raw.autostart);
        let problem = "`autostart`: no application starts at boot, expected one that does".to_owned();
        return Err(Error::Manifest { place, problem });
    }
    Ok(())
}

/// The board's prices have one writer.
fn check_publisher(layers: &[Layers], applications: &[Application]) -> Result<()> {
    let mut publishers = applications.iter().enumerate().filter(|(_, app)| app.publishes_prices);
    let (Some((_, first)), Some((number, second))) = (publishers.next(), publishers.next()) else {
        return Ok(());
    };
    let place = layers[number].place(|raw| &raw.publishes_prices);
    let problem = format!(
        "`publishes_prices`: `{}` and `{}` both do, expected at most one application of a bundle",
        first.name, second.name
    );
    Err(Error::Manifest { place, problem })
}
