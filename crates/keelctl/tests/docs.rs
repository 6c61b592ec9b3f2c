//! The configuration page holds the tables of the code.

use evenkeel_runtime::Settings;
use evenkeel_runtime::config::table;

fn holds<C: Settings>() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let page = std::fs::read_to_string(path).unwrap();
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
