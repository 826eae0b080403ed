//! The page of reproduced rows.
//!
//! ```text
//!   contents, each with what agrees
//!   paper
//!     row | row        figure | paper | here | o---|---   a strip for each pair, on the scale in
//!     row | row                                           the head of its table
//!       a plot of each figure of the paper, ours beside its values
//!       plots of what reached the device
//! ```
//!
//! A table or plot has the figures of one quantity and unit. Tested here and, in a browser, in
//! `lab/tests/reproduce`.

use std::fmt::Write;

use crate::report::{About, Chart, Layout, Page, Strip, escape};

use crate::reproduce::catalog::Catalog;
use crate::reproduce::document::{Compared, Document, INTERRUPTED, Reproduced, SHORT, Verdict};

/// Figures of a table; those behind are in one beside it, on the same scale.
const FIGURES_MAX: usize = 24;

/// One self-contained file.
pub fn page(document: &Document, catalog: &Catalog, about: &About) -> String {
    let mut page = Page::new("The papers' tables and figures, and ours");
    if document.interrupted {
        page.paragraph(INTERRUPTED);
    }
    let form = if document.full { "The papers' lengths." } else { SHORT };
    page.paragraph(&format!(
        "{form} Rows in virtual time give the same figures on every machine. {}",
        summary(&document.rows)
    ));
    contents(&mut page, document, catalog);
    for paper in &catalog.papers {
        let rows: Vec<&Reproduced> =
            document.rows.iter().filter(|row| row.paper == paper.id).collect();
        if rows.is_empty() {
            continue;
        }
        page.heading(&paper.title);
        page.html("<div class=\"columns\">\n");
        for row in rows {
            section(&mut page, row, document.full);
        }
        page.html("</div>\n");
    }
    page.finish(about)
}

fn count(figures: &[Compared], verdict: Verdict) -> usize {
    figures.iter().filter(|compared| compared.verdict() == Some(verdict)).count()
}

/// How many of the printed values agree, over all rows.
fn summary(rows: &[Reproduced]) -> String {
    let sum = |verdict| rows.iter().map(|row| count(&row.figures, verdict)).sum::<usize>();
    let [agree, lower, higher] = [Verdict::Agrees, Verdict::Lower, Verdict::Higher].map(sum);
    format!(
        "Of {} values that the papers print, {agree} agree: ours differs by less than a fifth. \
         {lower} are lower here, {higher} higher.",
        agree + lower + higher
    )
}

/// Every row with a link to it, and how many of its printed values agree.
fn contents(page: &mut Page, document: &Document, catalog: &Catalog) {
    page.heading("Contents, and what agrees");
    let mut text =
        "<table class=\"fit\">\n<tr><th class=\"w\">table or figure</th><th>printed</th>\
                    <th>agree</th><th>lower</th><th>higher</th></tr>\n"
            .to_owned();
    for paper in &catalog.papers {
        let rows = document.rows.iter().filter(|row| row.paper == paper.id);
        for (at, row) in rows.enumerate() {
            if at == 0 {
                let title = escape(&paper.title);
                let _ = writeln!(text, "<tr><th class=\"w\" colspan=\"5\">{title}</th></tr>");
            }
            let _ = writeln!(
                text,
                "<tr><td class=\"w\"><a href=\"#{}\">{}</a>: {}</td>{}</tr>",
                escape(&row.name),
                escape(&row.place),
                escape(&row.what),
                verdicts(row)
            );
        }
    }
    page.html(&(text + "</table>\n"));
}

fn verdicts(row: &Reproduced) -> String {
    if !row.figures.iter().any(|compared| compared.ours.is_some()) {
        return "<td class=\"w\" colspan=\"4\">not run</td>".to_owned();
    }
    let counts = [Verdict::Agrees, Verdict::Lower, Verdict::Higher]
        .map(|verdict| count(&row.figures, verdict));
    if counts == [0; 3] {
        return "<td class=\"w\" colspan=\"4\">no value printed</td>".to_owned();
    }
    let cell = |count: usize| match count {
        0 => "<td></td>".to_owned(),
        count => format!("<td>{count}</td>"),
    };
    cell(counts.iter().sum()) + &counts.map(cell).concat()
}

/// Its figures in groups of one quantity and unit, in the order of the row. What the paper does not
/// print and the short form does not run is left out.
fn groups(row: &Reproduced) -> Vec<Vec<&Compared>> {
    let mut groups: Vec<Vec<&Compared>> = Vec::new();
    let has_value =
        |compared: &&Compared| compared.ours.is_some() || compared.paper.bounds().is_some();
    for compared in row.figures.iter().filter(has_value) {
        let of = |group: &Vec<&Compared>| {
            (&group[0].quantity, &group[0].unit) == (&compared.quantity, &compared.unit)
        };
        match groups.iter().position(of) {
            Some(at) => groups[at].push(compared),
            None => groups.push(vec![compared]),
        }
    }
    groups
}

fn section(page: &mut Page, row: &Reproduced, full: bool) {
    let groups = groups(row);
    let wide = row.figures.len() > FIGURES_MAX;
    let class = if wide { " class=\"wide\"" } else { "" };
    page.html(&format!("<section id=\"{}\"{class}>\n", escape(&row.name)));
    page.subheading(&format!("{}: {}", row.place, row.what));
    page.html("<div class=\"pairs\">\n");
    for group in &groups {
        let strip = Strip::over(group.iter().flat_map(|compared| {
            compared.ours.into_iter().chain(compared.paper.bounds().into_iter().flatten())
        }));
        let tables = group.len().div_ceil(FIGURES_MAX);
        for figures in group.chunks(group.len().div_ceil(tables)) {
            page.html(&table(figures, &strip, group));
        }
    }
    page.html("</div>\n");
    groups.iter().filter_map(|group| plot(row, group)).for_each(|chart| page.bars(&chart));
    page.html("<div class=\"plots\">\n");
    for (name, measured) in &row.plots {
        page.html("<div>\n");
        let title = format!("write requests by address, {name}");
        page.sequence(&title, &measured.events, measured.events_lost);
        page.html("</div>\n");
    }
    page.html(&format!("</div>\n<p class=\"note\"><code>{}</code></p>\n", escape(&row.command)));
    for note in row.notes(full) {
        page.html(&format!("<p class=\"note\">{}</p>\n", with_code(&note)));
    }
    page.html("</section>\n");
}

/// The values that a figure of the paper prints, and ours; nothing of a table or of one value.
fn plot(row: &Reproduced, group: &[&Compared]) -> Option<Chart> {
    let of = |one: &&Compared| Some((one.name.clone(), one.paper.bounds()?, one.ours?));
    let printed: Vec<(String, [f64; 2], f64)> = group.iter().filter_map(of).collect();
    if !row.place.contains("Figure") || printed.len() < 2 {
        return None;
    }
    let (mut series, mut values) = (vec!["paper", "here"], Vec::new());
    if printed.iter().any(|(_, [low, high], _)| low != high) {
        series = vec!["paper", "paper, up to", "here"];
    }
    for (_, [low, high], ours) in &printed {
        let high = if low == high { f64::NAN } else { *high };
        values.push(if series.len() == 2 { vec![*low, *ours] } else { vec![*low, high, *ours] });
    }
    let all = printed.iter().flat_map(|(_, [low, high], ours)| [*low, *high, *ours]);
    Some(Chart {
        title: group[0].quantity.clone(),
        unit: group[0].unit.clone(),
        layout: Layout::Rows,
        log: Strip::over(all).is_log(),
        groups: printed.iter().map(|(name, ..)| name.clone()).collect(),
        series: series.into_iter().map(str::to_owned).collect(),
        values,
        ..Chart::default()
    })
}

/// Text with what stands between backquotes as code.
fn with_code(text: &str) -> String {
    let piece = |(at, piece): (usize, &str)| match at % 2 {
        0 => escape(piece),
        _ => format!("<code>{}</code>", escape(piece)),
    };
    text.split('`').enumerate().map(piece).collect()
}

/// The figures of a group, or a part of them, on the scale of all of it.
fn table(figures: &[&Compared], strip: &Strip, group: &[&Compared]) -> String {
    let printed = group.iter().any(|compared| compared.paper.bounds().is_some());
    let run = group.iter().any(|compared| compared.ours.is_some());
    let if_there = |is_there: bool, cell: String| if is_there { cell } else { String::new() };
    let Compared { quantity, unit, .. } = group[0];
    let of = if unit.is_empty() { String::new() } else { format!(", {}", escape(unit)) };
    let mut text = format!(
        "<table class=\"fit\"><caption>{}{of}</caption>\n<tr><th class=\"w\"></th>{}{}{}</tr>\n",
        escape(quantity),
        if_there(printed, "<th class=\"paper\">paper</th>".to_owned()),
        if_there(run, "<th class=\"here\">here</th>".to_owned()),
        strip.head()
    );
    for compared in figures {
        let _ = writeln!(
            text,
            "<tr><td class=\"w\">{}</td>{}{}{}</tr>",
            escape(&compared.name),
            if_there(printed, format!("<td>{}</td>", compared.paper_text())),
            if_there(run, format!("<td>{}</td>", ours(compared))),
            strip.cell(compared.paper.bounds(), compared.ours)
        );
    }
    text + "</table>\n"
}

/// Ours as text. Small values differ in digits that a figure leaves out.
fn ours(compared: &Compared) -> String {
    let small = compared.ours.filter(|ours| compared.range.is_none() && (1e-4..0.1).contains(ours));
    small.map_or_else(|| compared.ours_text(), |ours| format!("{ours:.4}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reproduce::catalog::Published;

    fn figure(unit: &str, quantity: &str, paper: Published, ours: f64) -> Compared {
        Compared {
            name: format!("{quantity} {ours}"),
            quantity: quantity.to_owned(),
            unit: unit.to_owned(),
            paper,
            ours: Some(ours),
            range: None,
            cause: String::new(),
            length: String::new(),
        }
    }

    fn row(figures: Vec<Compared>) -> Reproduced {
        Reproduced {
            paper: "p".to_owned(),
            name: "p/figure-1".to_owned(),
            place: "Figure 1".to_owned(),
            what: "<what>".to_owned(),
            differs: String::new(),
            command: "syncline-lab reproduce p/figure-1".to_owned(),
            time: Default::default(),
            why: String::new(),
            figures,
            plots: Vec::new(),
        }
    }

    #[test]
    fn values_agree_within_a_fifth() {
        let verdict = |unit, paper, ours| figure(unit, "q", paper, ours).verdict();
        assert_eq!(verdict("s", Published::None, 1.0), None);
        assert_eq!(verdict("s", Published::One(8.0), 9.5), Some(Verdict::Agrees));
        assert_eq!(verdict("s", Published::One(8.0), 10.1), Some(Verdict::Higher));
        assert_eq!(verdict("s", Published::Range([8.0, 20.0]), 5.9), Some(Verdict::Lower));
        assert_eq!(verdict("%", Published::One(-2.0), 2.9), Some(Verdict::Higher));
        assert_eq!(verdict("%", Published::One(-60.0), -40.0), Some(Verdict::Higher));
    }

    #[test]
    fn a_table_has_one_quantity_and_unit_and_names_what_it_has() {
        let one = |unit, quantity, paper| figure(unit, quantity, paper, 1.0);
        let figures = [
            one("%", "Share", Published::None),
            one("%", "Gain", Published::One(2000.0)),
            one("s", "Time", Published::None),
            one("%", "Share", Published::None),
            Compared { ours: None, ..one("s", "Time", Published::None) },
            Compared { ours: None, ..one("%", "Gain", Published::One(8.0)) },
        ];
        let row = row(figures.to_vec());
        assert_eq!(groups(&row).iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        let mut page = Page::new("t");
        section(&mut page, &row, true);
        let html = page.finish(&About::default());
        for part in
            ["<section id=\"p/figure-1\">", "Figure 1: &lt;what&gt;", ">Gain, %<", ">Time, s<"]
        {
            assert!(html.contains(part), "{part}: {html}");
        }
        assert_eq!(html.matches(">paper<").count(), 1, "no paper where it prints no value");
        assert!(plot(&row, &groups(&row)[0]).is_none(), "one printed value");
        assert!(verdicts(&row).contains("<td>1</td>"), "{}", verdicts(&row));
        assert!(summary(&[row]).contains("Of 1 values that the papers print, 0 agree"));
    }

    #[test]
    fn a_figure_of_the_paper_is_a_plot_of_its_values_and_ours() {
        let figures = vec![
            figure("%", "Gain", Published::One(107.0), 88.0),
            figure("%", "Gain", Published::None, 5.0),
            figure("%", "Gain", Published::Range([14.0, 28.0]), 7.0),
        ];
        let row = |place: &str| Reproduced { place: place.to_owned(), ..row(figures.clone()) };
        let (figure, table) = (row("Figure 3, section 3"), row("Table 3, section 3"));
        let chart = plot(&figure, &groups(&figure)[0]).unwrap();
        assert_eq!(chart.groups, ["Gain 88", "Gain 7"]);
        assert_eq!(chart.series, ["paper", "paper, up to", "here"]);
        assert_eq!(chart.values[1], [14.0, 28.0, 7.0]);
        let colour = |at: usize| chart.document()["series"][at]["colour"].clone();
        assert_eq!((colour(0), colour(2)), ("#0072b2".into(), "#d55e00".into()));
        assert!(plot(&table, &groups(&table)[0]).is_none());
    }

    /// The colour that a rule of the page's style sets, the last one if there are several.
    fn colour<'p>(html: &'p str, selector: &str, property: &str) -> Option<&'p str> {
        let rules = html.split('}').filter_map(|rule| rule.trim().split_once('{'));
        let of = rules.filter(|(of, _)| of.split(',').any(|one| one == selector));
        let set = of.flat_map(|(_, set)| set.split(';').filter_map(|one| one.split_once(':')));
        set.filter(|(name, _)| *name == property).map(|(_, value)| value).next_back()
    }

    #[test]
    fn the_paper_has_one_colour_and_ours_another_everywhere() {
        let one = figure("s", "Time", Published::One(1.0), 3.0);
        let mut page = Page::new("t");
        page.html(&table(&[&one], &Strip::over([1.0, 3.0].into_iter()), &[&one]));
        let html = page.finish(&About::default());
        // The heads, the figures below them, and the marks at their places on the scale.
        for part in [
            "<th class=\"paper\">paper</th><th class=\"here\">here</th>",
            "<td>1</td><td>3.00</td><td class=\"strip\">",
            "<line class=\"paper\" x1=\"33.5%\" x2=\"35.1%\"",
            "<circle cx=\"97.0%\"",
        ] {
            assert!(html.contains(part), "{part}");
        }
        let colour = |selector, property| colour(&html, selector, property).unwrap();
        let paper = colour(".strip .paper", "stroke");
        let ours = colour(".strip circle", "fill");
        assert_ne!(paper, ours);
        assert_eq!(colour("th.paper::before", "background"), paper);
        assert_eq!(colour("th.here::before", "background"), ours);
    }
}
