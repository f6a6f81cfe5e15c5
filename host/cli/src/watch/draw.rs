//! A view on a screen of any size.
//!
//! What matters most stays longest when the screen gets smaller: profit, then the application, then prices,
//! then the console.

use super::model::{Figure, Panel, View};
use super::text;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, RenderDirection, Sparkline, SparklineBar};

/// Columns of a label, and of a value that has a history behind it.
const LABEL: u16 = 15;
const VALUE: u16 = 52;
/// Fewest columns in which a history says something.
const HISTORY: u16 = 12;
/// Rows of the console that are kept free where there is room for anything below the figures.
const CONSOLE_ROWS: u16 = 4;

/// Draws `view`, with the last lines of the `console`, which gives as many as it is asked for.
pub fn draw(frame: &mut Frame<'_>, view: &View, console: impl Fn(usize) -> Vec<String>) {
    let [top, notices, body, bottom] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(if frame.area().height < 8 { 0 } else { view.notices.len() as u16 }),
        Constraint::Min(0),
        Constraint::Length(u16::from(frame.area().height >= 4)),
    ])
    .areas(frame.area());
    frame.render_widget(headline(view), top);
    let lines: Vec<Line<'_>> =
        view.notices.iter().map(|notice| Line::from(format!(" {notice}").yellow())).collect();
    frame.render_widget(Paragraph::new(lines), notices);
    frame.render_widget(Line::from(" q: end the machine").dim(), bottom);
    draw_body(frame, body, view, console);
}

fn headline(view: &View) -> Line<'static> {
    let name = Span::from(format!(" {} ", view.machine)).bold();
    let Some([sum, rate]) = view.profit else {
        return Line::from(vec![name, no_profit(view)]);
    };
    let style = if rate < 0.0 { Style::new().red().bold() } else { Style::new().green().bold() };
    let earned = format!(" profit {} $/s, {} $ so far", text::number(rate), text::number(sum));
    Line::from(vec![name, Span::styled(earned, style)])
}

/// What the headline says where nobody earns.
fn no_profit(view: &View) -> Span<'static> {
    match view.cost {
        None => Span::from(" nothing reported yet").dim(),
        Some([sum, rate]) => {
            let cost = format!(" costs {} $/s, {} $ so far", text::number(rate), text::number(sum));
            Span::from(cost).bold()
        }
    }
}

fn draw_body(frame: &mut Frame<'_>, area: Rect, view: &View, console: impl Fn(usize) -> Vec<String>) {
    let blocks = blocks(view);
    let mut left = area;
    for (number, block) in blocks.iter().enumerate() {
        let wanted = block.figures.len() as u16 + 1;
        let room = left.height;
        // The first block may take all there is; others only what leaves the console some rows.
        let fits = if number == 0 { room > 1 } else { room >= wanted + CONSOLE_ROWS };
        if !fits {
            break;
        }
        let [own, rest] =
            Layout::vertical([Constraint::Length(wanted.min(room)), Constraint::Min(0)]).areas(left);
        draw_block(frame, own, block);
        left = rest;
    }
    if left.height > 1 {
        let lines = console(usize::from(left.height) - 1).into_iter().map(console_line).collect::<Vec<_>>();
        let block = Block::new().borders(Borders::TOP).title(" console ");
        frame.render_widget(Paragraph::new(lines).block(block), left);
    }
}

/// Figures under a title.
struct Figures<'v> {
    title: String,
    warns: bool,
    figures: &'v [Figure],
}

/// What is shown, the most important first: applications, then prices.
fn blocks(view: &View) -> Vec<Figures<'_>> {
    let panel = |panel: &Panel| panel.name.clone();
    let applications = view.applications.iter();
    let mut blocks: Vec<Figures<'_>> = applications
        .map(|application| Figures { title: panel(application), warns: false, figures: &application.figures })
        .collect();
    if !view.prices.is_empty() {
        let title = format!("prices: {}", view.source);
        blocks.push(Figures { title, warns: view.stale, figures: &view.prices });
    }
    blocks
}

fn draw_block(frame: &mut Frame<'_>, area: Rect, block: &Figures<'_>) {
    let title = Span::from(format!(" {} ", block.title));
    let title = if block.warns { title.yellow().bold() } else { title.bold() };
    let border = Block::new().borders(Borders::TOP).title(title);
    let inner = border.inner(area);
    frame.render_widget(border, area);
    for (row, figure) in inner.rows().zip(block.figures) {
        draw_figure(frame, row, figure);
    }
}

fn draw_figure(frame: &mut Frame<'_>, row: Rect, figure: &Figure) {
    let with_history = row.width >= LABEL + VALUE + HISTORY && !figure.history.is_empty();
    let value = if with_history { Constraint::Length(VALUE) } else { Constraint::Min(0) };
    let history = if with_history { Constraint::Min(0) } else { Constraint::Length(0) };
    let label = Constraint::Length(LABEL.min(row.width / 2));
    let [label, value, history] = Layout::horizontal([label, value, history]).areas(row);
    frame.render_widget(Line::from(format!(" {}", figure.label)).dim(), label);
    frame.render_widget(Line::from(figure.value.as_str()), value);
    if history.width > 0 {
        frame.render_widget(sparkline(figure, history.width), history);
    }
}

/// The newest values at the right; a loss is red, and as high as it is great.
fn sparkline(figure: &Figure, width: u16) -> Sparkline<'static> {
    /// Height of the greatest value, of which eighths are shown; what is not 0 has one at least.
    const FULL: f64 = 800.0;
    let start = figure.history.len().saturating_sub(usize::from(width));
    let shown = &figure.history[start..];
    let finite = |value: &Option<f64>| value.filter(|value| value.is_finite());
    let greatest = shown.iter().filter_map(finite).fold(0.0, |most: f64, value| most.max(value.abs()));
    let height = |value: f64| match value.abs() / greatest {
        share if share > 0.0 => (FULL * share).max(FULL / 8.0) as u64,
        _ => 0,
    };
    let bar = |value: &Option<f64>| {
        let loss = finite(value).is_some_and(|value| value < 0.0);
        SparklineBar::from(finite(value).map(height)).style(loss.then_some(Style::new().fg(Color::Red)))
    };
    let bars: Vec<SparklineBar> = shown.iter().rev().map(bar).collect();
    Sparkline::default()
        .data(bars)
        .max(FULL as u64)
        .direction(RenderDirection::RightToLeft)
        .absent_value_symbol(" ")
        .style(Style::new().fg(Color::Cyan))
}

/// A line of the console; the kernel's own are told from the applications'.
fn console_line(line: String) -> Line<'static> {
    let level = line.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map(|(_, rest)| rest);
    match level.and_then(|rest| rest.split_whitespace().next()) {
        Some("error") => Line::from(line.red()),
        Some("warn") => Line::from(line.yellow()),
        Some("info" | "debug") => Line::from(line.dim()),
        _ => Line::from(line),
    }
}

#[cfg(test)]
mod tests;
