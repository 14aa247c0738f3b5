use clap::ValueEnum as _;

use super::*;

#[test]
fn every_bug_that_replicas_can_have_has_one_row_and_so_has_the_forgetful_database() {
    for plant in Plant::value_variants() {
        let rows = ROWS.iter().filter(|row| row.bug == Bug::Service(*plant)).count();
        assert_eq!(rows, 1, "{}", plant.name());
    }
    assert_eq!(ROWS.iter().filter(|row| row.bug == Bug::Forgetful).count(), 1);
    assert_eq!(ROWS.len(), Plant::value_variants().len() + 1);
}

#[test]
fn with_the_bug_and_without_it_all_else_is_the_same() {
    for row in ROWS {
        let (planted, sound) = (row.staged(7, true), row.staged(7, false));
        assert_eq!(planted.schedule, sound.schedule);
        let without: Vec<_> = planted
            .flags
            .iter()
            .filter(|flag| !flag.contains("--plant") && **flag != row.bug.name())
            .collect();
        assert_eq!(without, sound.flags.iter().collect::<Vec<_>>());
        let told = planted.flags.len() - sound.flags.len();
        assert_eq!(told, if row.bug == Bug::Forgetful { 0 } else { 2 });
    }
}

#[test]
fn a_flag_comes_once_with_its_last_value() {
    let mut flags = ["--lab", "--lease-ms", "1000"].map(str::to_owned).to_vec();
    set(&mut flags, "--lease-ms", "300");
    set(&mut flags, "--fenced", "");
    assert_eq!(flags, ["--lab", "--lease-ms", "300", "--fenced"]);
}
