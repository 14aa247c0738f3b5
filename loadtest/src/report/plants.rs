//! The report on planted bugs: a line for each seed while they run, and a table.

use comfy_table::{Cell, Table};

use crate::lab::planting::{Attempt, PlantReport, PlantsReport};
use crate::report::table::STYLE;
use crate::report::wrapped;

/// What came of a bug and a seed, in a line.
pub fn line(name: &str, attempt: &Attempt) -> String {
    let Attempt { seed, rounds, caught_by, clean, without, .. } = attempt;
    let caught = match caught_by.first() {
        Some(sign) => format!("caught in round {rounds} ({sign})"),
        None => format!("NOT CAUGHT in {rounds} rounds"),
    };
    let sound = if *clean {
        "clean without it".to_owned()
    } else {
        let all: Vec<&str> =
            without.wrong.iter().chain(&without.invalid).map(String::as_str).collect();
        format!("NOT CLEAN without it: {}", all.join("; "))
    };
    format!("{name:<26} seed {seed}: {caught}; {sound}")
}

impl PlantsReport {
    /// The table and what it comes to.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(STYLE);
        table.force_no_tty().set_header(["bug", "breaks", "where", "caught by", "rounds", "sound"]);
        for plant in &self.plants {
            table.add_row(cells(plant).map(Cell::new));
        }
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        let provenance = format!(
            "{:.0} s; database {}, Redis {}, HAProxy {}; {} CPUs, Linux {}.",
            self.took_s,
            self.versions.database,
            self.versions.redis,
            self.versions.haproxy,
            self.machine.cpus,
            self.machine.kernel
        );
        let Self { planted, caught, clean, median_rounds, .. } = self;
        let sum = format!("planted {planted}, caught {caught}, median rounds {median_rounds}");
        let sound = format!("clean without the bug: {clean} of {planted}");
        [lines.join("\n"), wrapped(&provenance), format!("{sum}\n{sound}")].join("\n\n")
    }
}

fn cells(plant: &PlantReport) -> [String; 6] {
    let signs = plant.attempts.iter().find_map(|one| one.caught_by.first());
    let sign = signs.map_or("nothing", |sign| sign.split(':').next().unwrap_or(sign));
    let rounds = plant
        .attempts
        .iter()
        .map(|one| if one.caught_by.is_empty() { "-".to_owned() } else { one.rounds.to_string() });
    [
        plant.name.to_owned(),
        plant.breaks.to_owned(),
        plant.shown_by.clone(),
        sign.to_owned(),
        rounds.collect::<Vec<_>>().join(" "),
        if plant.is_clean() { "clean" } else { "NOT CLEAN" }.to_owned(),
    ]
}
