//! The configuration page holds the tables of the code, and the sample files hold known keys.

use evenkeel_runtime::Settings;
use evenkeel_runtime::config::{Sources, load, table};

fn holds<C: Settings>() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let page = std::fs::read_to_string(path).unwrap_or_default();
    let section = format!("## {}\n\n{}", C::SERVICE, table::<C>());
    assert!(
        page.contains(section.trim_end()),
        "docs/config.md does not hold what {} --print-config-table prints:\n{section}",
        C::SERVICE
    );
}

#[test]
fn the_configuration_page_is_what_the_services_print() {
    holds::<evenkeel_load_manager::config::Config>();
    holds::<evenkeel_broker_agent::config::Config>();
    holds::<evenkeel_migrator::config::Config>();
}

fn sample_is_valid<C: Settings>() {
    let file = format!("{}/../../deploy/config/{}.yaml", env!("CARGO_MANIFEST_DIR"), C::SERVICE);
    let sources = Sources { file: Some(file.into()), ..Sources::default() };
    if let Err(error) = load::<C>(&sources) {
        panic!("{error}");
    }
}

#[test]
fn the_sample_configurations_are_valid() {
    sample_is_valid::<evenkeel_load_manager::config::Config>();
    sample_is_valid::<evenkeel_broker_agent::config::Config>();
    sample_is_valid::<evenkeel_migrator::config::Config>();
}
