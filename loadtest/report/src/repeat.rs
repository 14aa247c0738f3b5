//! The commands that repeat a run, or one cell of it.

use loadtest_judge::setting::{Guards, Scope};
use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_axes::{Load, PurchaseMode, Writer};
use loadtest_lab::cell_spec::CellSpec;
use loadtest_lab::faults::FaultKind;
use loadtest_lab::injected_bugs::BUG_CASES;
use loadtest_lab::injection_results::InjectionResults;
use loadtest_lab::ladder::REPAIRED;
use loadtest_lab::lock::Lock;
use loadtest_lab::predict::Scenario;
use loadtest_lab::presets::Preset;
use loadtest_lab::runner::Flag;
use loadtest_lab::topology::Topology;

use crate::Report;

/// The command that runs all cells again.
pub fn run(report: &Report) -> String {
    let trials: Vec<CellSpec> = report.cells.iter().map(CellReport::trial).collect();
    let chosen_by = report.selection.as_ref().and_then(|chosen| chosen.command.clone());
    if let Some(command_line) = chosen_by {
        return command(&command_line, report.chosen.clone());
    }
    let whole = match &report.selection {
        None => comparison(&trials, &report.load),
        Some(selection) => {
            let matrix = match selection.preset {
                Some(preset) => {
                    let sample = selection.sample.map(|count| format!(" --sample {count}"));
                    let (name, sample) = (preset.name(), sample.unwrap_or_default());
                    format!("loadtest matrix --{name}{sample} --seed {}", selection.seed)
                }
                None => matrix(&trials, &report.load, selection.seed),
            };
            let is_sample = selection.sample.is_some();
            let usual = Preset::default_bugs(selection.preset, is_sample);
            command(&matrix, injection(report.injected_bugs.as_ref(), usual))
        }
    };
    command(&whole, report.chosen.clone())
}

/// The flags of the injected bugs, where they are not those of the preset.
fn injection(
    results: Option<&InjectionResults>,
    (usual, usual_seeds): (&'static [&'static str], u64),
) -> Vec<Flag> {
    let names: Vec<&str> = results.iter().flat_map(|all| &all.bugs).map(|bug| bug.name).collect();
    let usual = match usual {
        ["all"] => BUG_CASES.map(|row| row.bug.name()).to_vec(),
        names => names.to_vec(),
    };
    let seeds = results.map_or(usual_seeds, |all| all.seeds);
    let mut flags: Vec<Flag> = Vec::new();
    if names != usual {
        let names = if names.is_empty() { "none".to_owned() } else { names.join(",") };
        flags.push(("--inject-bugs", names));
    }
    if seeds != usual_seeds {
        flags.push(("--bug-seeds", seeds.to_string()));
    }
    flags
}

/// The command that runs this cell again, with the seed with which it came out so.
pub fn one(report: &Report, cell: &CellReport) -> String {
    if let Some(rung) = &cell.rung {
        let slug = rung.strip_suffix(REPAIRED).unwrap_or(rung);
        let learn = format!("loadtest learn {slug} --seed {}", cell.seed);
        return command(&learn, report.chosen.clone());
    }
    let one = match report.selection {
        None => comparison(&[cell.trial()], &report.load),
        Some(_) => matrix(&[cell.trial()], &report.load, cell.seed),
    };
    command(&one, report.chosen.clone())
}

/// The command that injects that bug again, with all seeds up to that one.
pub fn bug(chosen: &[Flag], name: &str, seed: u64) -> String {
    let inject = format!("loadtest inject-bugs --only {name} --seeds {seed}");
    command(&inject, chosen.to_vec())
}

/// The command that injects all bugs with that many seeds.
pub fn bugs(chosen: &[Flag], seeds: u64) -> String {
    command(&format!("loadtest inject-bugs --seeds {seeds}"), chosen.to_vec())
}

/// The command that judges that history again.
pub fn check(history: &str) -> String {
    format!("loadtest check {}", quoted(history))
}

/// A command with flags that are words already.
pub(super) fn command_line(name: &str, flags: &[String]) -> String {
    let words = flags.iter().map(|word| quoted(word));
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it for one.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The command that compares these, each named once, under this load.
fn comparison(trials: &[CellSpec], load: &Load) -> String {
    let mut flags = places(trials);
    flags.extend([
        ("--users", load.users.to_string()),
        ("--stock", load.stock.to_string()),
        ("--connections", load.connections.to_string()),
        ("--requests-per-user", load.requests_per_user.to_string()),
    ]);
    if load.work_ms > 0 {
        flags.push(("--work-ms", load.work_ms.to_string()));
    }
    flags.extend(mode_flag(load.mode));
    if load.writer != Writer::Single {
        flags.push(("--writer", load.writer.name().to_owned()));
    }
    if let Some(bug) = load.injected_bug {
        flags.push(("--inject-bug", bug.name().to_owned()));
    }
    flags.extend(load.fleet.chosen());
    command("loadtest compare", flags)
}

/// The command that runs the product of what these have, each named once.
fn matrix(trials: &[CellSpec], load: &Load, seed: u64) -> String {
    let mut flags = places(trials);
    let fault = |fault: Option<FaultKind>| fault.map_or("none", FaultKind::name);
    flags.extend([
        ("--scenarios", each(trials, |trial| trial.scenario, Scenario::name)),
        ("--faults", each(trials, |trial| trial.fault, fault)),
        ("--seed", seed.to_string()),
    ]);
    if trials.iter().any(|trial| !trial.topology.is_single()) {
        flags.push(("--topologies", each(trials, |trial| trial.topology, Topology::name)));
    }
    flags.extend(mode_flag(load.mode));
    flags.extend(load.fleet.chosen());
    command("loadtest matrix", flags)
}

fn mode_flag(mode: PurchaseMode) -> Option<Flag> {
    (mode != PurchaseMode::Direct).then(|| ("--mode", mode.name().to_owned()))
}

fn places(trials: &[CellSpec]) -> Vec<Flag> {
    vec![
        ("--locks", each(trials, |trial| trial.axes.lock, Lock::name)),
        ("--scopes", each(trials, |trial| trial.axes.scope, Scope::name)),
        ("--guards", each(trials, |trial| trial.axes.guards, Guards::name)),
        ("--replicas", each(trials, |trial| trial.axes.replicas, |count| count.to_string())),
    ]
}

fn command(name: &str, flags: Vec<Flag>) -> String {
    let words = flags.into_iter().map(|(flag, value)| format!("{flag} {}", quoted(&value)));
    std::iter::once(name.to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// The values of one axis, in the order in which they come, each once.
fn each<T: PartialEq + Copy, N: AsRef<str>>(
    trials: &[CellSpec],
    axis: impl Fn(&CellSpec) -> T,
    name: impl Fn(T) -> N,
) -> String {
    let mut values = Vec::new();
    for value in trials.iter().map(axis) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values.into_iter().map(|value| name(value).as_ref().to_owned()).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use loadtest_lab::cell_axes::{CellAxes, InjectedBug};
    use loadtest_lab::fixtures::injection_results;
    use loadtest_lab::fleet::{Fleet, JvmBug};

    use super::*;
    use crate::tests::{matrix_report, report};

    #[test]
    fn the_command_names_every_choice_once() {
        let (injected_bug, mode) = (Some(InjectedBug::LyingAudit), PurchaseMode::Queued);
        let fleet = Fleet { jvm_bug: Some(JvmBug::LyingAudit), ..Fleet::RUST };
        let load = Load { work_ms: 5, injected_bug, mode, fleet, ..Load::DEFAULT };
        let trial = |lock, replicas| {
            let (scope, guards) = (Scope::User, Guards::Off);
            CellSpec::plain(CellAxes { lock, scope, guards, replicas })
        };
        let trials = [trial(Lock::Local, 3), trial(Lock::Redisson, 3), trial(Lock::Local, 1)];
        assert_eq!(
            comparison(&trials, &load),
            "loadtest compare --locks local,redisson --scopes user --guards off --replicas 3,1 \
             --users 700 --stock 100 --connections 96 --requests-per-user 3 --work-ms 5 --mode \
             queued --inject-bug lying-audit --inject-jvm-bug lying-audit"
        );
    }

    #[test]
    fn one_cell_of_a_matrix_is_repeated_with_its_own_seed_and_fault() {
        let report = matrix_report();
        let frozen = report.cells.iter().find(|cell| cell.scenario.is_frozen());
        assert_eq!(
            one(&report, frozen.expect("a frozen holder")),
            "loadtest matrix --locks redisson --scopes voucher --guards off --replicas 3 \
             --scenarios frozen-unfenced --faults freeze --seed 9"
        );
        assert!(one(&report, &report.cells[0]).ends_with("short-work --faults none --seed 0"));
        let queued =
            Report { load: Load { mode: PurchaseMode::Queued, ..Load::DEFAULT }, ..report };
        assert!(one(&queued, &queued.cells[0]).ends_with("--seed 0 --mode queued"));
    }

    #[test]
    fn a_preset_is_repeated_by_its_name_and_another_matrix_by_its_axes() {
        let mut report = matrix_report();
        assert!(run(&report).contains("--faults none,freeze"), "{}", run(&report));
        if let Some(selection) = &mut report.selection {
            selection.preset = Some(Preset::Story);
        }
        assert_eq!(run(&report), "loadtest matrix --story --seed 7 --inject-bugs none");
        report.injected_bugs = Some(injection_results(Preset::Story.bugs().0, 1));
        assert_eq!(run(&report), "loadtest matrix --story --seed 7");
        if let Some(selection) = &mut report.selection {
            selection.sample = Some(30);
        }
        let sampled = "loadtest matrix --story --sample 30 --seed 7 --inject-bugs ";
        assert!(run(&report).starts_with(sampled), "{}", run(&report));
        if let Some(selection) = &mut report.selection {
            selection.sample = None;
        }
        report.injected_bugs = Some(injection_results(&["lying-audit"], 5));
        assert_eq!(
            run(&report),
            "loadtest matrix --story --seed 7 --inject-bugs lying-audit --bug-seeds 5"
        );
    }

    #[test]
    fn a_part_of_a_preset_has_no_injected_bugs_unless_they_are_requested() {
        let mut report = matrix_report();
        if let Some(selection) = &mut report.selection {
            (selection.preset, selection.sample) = (Some(Preset::Full), Some(30));
        }
        assert_eq!(run(&report), "loadtest matrix --full --sample 30 --seed 7");
        report.injected_bugs = Some(injection_results(&["lying-audit"], 3));
        assert!(run(&report).ends_with("--seed 7 --inject-bugs lying-audit"), "{}", run(&report));
    }

    #[test]
    fn a_program_and_a_database_that_were_chosen_are_chosen_again() {
        let mut reports = [matrix_report(), report(loadtest_lab::fixtures::story())];
        for report in &mut reports {
            let path = "target/it's/seckill".to_owned();
            report.chosen = vec![("--db", "mysql".to_owned()), ("--seckill", path)];
            let flags = r" --db mysql --seckill 'target/it'\''s/seckill'";
            assert!(run(report).ends_with(flags), "{}", run(report));
            let cell = one(report, &report.cells[0]);
            assert!(cell.ends_with(flags), "{cell}");
        }
        assert_eq!(check("a b.zst"), "loadtest check 'a b.zst'");
    }

    #[test]
    fn a_cell_of_a_comparison_is_repeated_by_a_comparison() {
        let report = report(loadtest_lab::fixtures::story());
        assert!(one(&report, &report.cells[0]).starts_with("loadtest compare --locks local "));
    }
}
