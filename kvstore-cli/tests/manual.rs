//! The settings on the page about the operation of servers.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a test may abort without memory"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a check fails by panicking")]

mod process;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use self::process::{KVSTORE, Process};

const PAGE: &str = include_str!("../../docs/guides/operations.md");

/// Arguments replace the addresses and folders, which only other machines have.
#[test]
fn the_configuration_file_starts_a_server() {
    let (_, block) = PAGE.split_once("```toml\n").expect("a block of TOML");
    let (file, _) = block.split_once("```").expect("its end");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("server.toml");
    fs::write(&config, file).unwrap();
    let (mut server, _) = Process::serve(&[
        "--config",
        config.to_str().unwrap(),
        "--address",
        "127.0.0.1:0",
        "--metrics",
        "127.0.0.1:0",
        "--certificates",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/certificates/server"),
        "--checkpoints",
        folder.path().to_str().unwrap(),
    ]);
    server.rest_of_line("metrics on ");
}

#[test]
fn the_table_lists_the_arguments_with_their_variables() {
    let output = Command::new(KVSTORE).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let mut arguments: BTreeSet<_> = words(&help).filter(|word| word.starts_with("--")).collect();
    assert!(arguments.remove("--help"));
    let rows = PAGE.lines().filter(|line| line.starts_with("| `--"));
    let listed: BTreeSet<_> = rows
        .map(|row| {
            let mut cells = row.split('|').skip(1).map(|cell| cell.trim().trim_matches('`'));
            let (argument, variable) = (cells.next().unwrap(), cells.next().unwrap());
            let expected = argument.trim_start_matches('-').replace('-', "_").to_uppercase();
            assert_eq!(variable, format!("KVSTORE_{expected}"));
            argument
        })
        .collect();
    assert_eq!(listed, arguments);
}

/// Returns the parts of a text that consist of letters and dashes.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| !char.is_ascii_lowercase() && char != '-')
}
