//! The bundle as a picture.

use super::values::NETWORK_CLASS;
use super::{Application, BundleManifest};
use nom_abi::image::DeviceSelector;
use std::fmt::Write;

/// The bundle as a graph in the DOT language: applications (double border: essential, dashed: not started
/// at boot), channels, devices and, dashed, who manages whom.
pub fn graph(bundle: &BundleManifest) -> String {
    let mut dot = String::from("digraph bundle {\n    rankdir=LR;\n    node [shape=box];\n");
    for (number, application) in bundle.applications.iter().enumerate() {
        add_application(&mut dot, number, application);
    }
    for (number, application) in bundle.applications.iter().enumerate() {
        add_edges(&mut dot, number, application);
    }
    dot.push_str("}\n");
    dot
}

fn add_application(dot: &mut String, number: usize, application: &Application) {
    let Application { name, weight, cores, .. } = application;
    let border = if application.essential { ", peripheries=2" } else { "" };
    let style = if application.autostart { "" } else { ", style=dashed" };
    line(dot, format_args!("a{number} [label=\"{name}\\nweight {weight}, cores {cores}\"{border}{style}]"));
}

fn add_edges(dot: &mut String, number: usize, application: &Application) {
    for peer in &application.peers {
        let kib = peer.bytes / 1024;
        line(dot, format_args!("a{number} -> a{} [dir=both, label=\"{kib} KiB\"]", peer.application));
    }
    for managed in &application.manages {
        line(dot, format_args!("a{number} -> a{managed} [style=dashed, label=\"manages\"]"));
    }
    for device in application.devices.iter().map(describe) {
        line(dot, format_args!("\"{device}\" [shape=ellipse]"));
        line(dot, format_args!("a{number} -> \"{device}\" [arrowhead=none]"));
    }
}

fn line(dot: &mut String, statement: std::fmt::Arguments<'_>) {
    writeln!(dot, "    {statement};").expect("a String takes everything");
}

fn describe(selector: &DeviceSelector) -> String {
    let DeviceSelector { vendor, device, class } = *selector;
    let class = match class {
        NETWORK_CLASS => "network".to_owned(),
        0xff_ffff => "any".to_owned(),
        class => format!("class {class:06x}"),
    };
    let id = |id: u16| {
        if id == 0xffff { "*".to_owned() } else { format!("{id:04x}") }
    };
    match (vendor, device) {
        (0xffff, 0xffff) => class,
        _ => format!("{class} {}:{}", id(vendor), id(device)),
    }
}
