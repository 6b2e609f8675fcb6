//! Compiles the programs. `PALISADE_BPF_CLANG` names the compiler, clang 15 or later; by default the newest of Debian's
//! that is installed. `PALISADE_BPF_OBJECTS` is a folder with objects that were compiled elsewhere, for machines without
//! one.

#![allow(
    clippy::disallowed_methods,
    reason = "a build has its configuration in variables, and runs a compiler"
)]

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The objects, each compiled from the source of the same name.
const OBJECTS: [&str; 2] = ["fast_path", "probe"];
/// The folder of the sources.
const SOURCES: &str = "src/c";
/// Compilers, the first that there is counts.
const COMPILERS: [&str; 6] = [
    "clang-19", "clang-18", "clang-17", "clang-16", "clang-15", "clang",
];
/// Atomic operations and 32-bit jumps, which Linux has since 5.12.
const ARGUMENTS: [&str; 8] = [
    "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf", "-mcpu=v3",
];

fn main() -> Result<(), Box<dyn Error>> {
    for variable in ["PALISADE_BPF_CLANG", "PALISADE_BPF_OBJECTS"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed={SOURCES}");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    for object in OBJECTS {
        let target = out.join(format!("{object}.o"));
        match env::var_os("PALISADE_BPF_OBJECTS") {
            Some(folder) => copy(&Path::new(&folder).join(format!("{object}.o")), &target)?,
            None => compile(object, &target)?,
        }
    }
    Ok(())
}

fn copy(object: &Path, target: &Path) -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed={}", object.display());
    std::fs::copy(object, target)
        .map_err(|error| format!("copying {}: {error}", object.display()))?;
    Ok(())
}

fn compile(object: &str, target: &Path) -> Result<(), Box<dyn Error>> {
    let source = Path::new(SOURCES).join(format!("{object}.c"));
    let compiler = compiler()?;
    let mut command = Command::new(&compiler);
    // The path of this folder is in no object: it would differ between machines.
    command.args(ARGUMENTS).arg("-ffile-prefix-map=src/c=c");
    if env::var_os("CARGO_FEATURE_FAULTS").is_some() {
        command.arg("-DPALISADE_FAULTS");
    }
    command.arg("-c").arg(&source).arg("-o").arg(target);
    let output = command
        .output()
        .map_err(|error| format!("running {compiler}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let messages = String::from_utf8_lossy(&output.stderr);
    Err(format!(
        "{compiler} cannot compile {}:\n{messages}",
        source.display()
    )
    .into())
}

fn compiler() -> Result<String, Box<dyn Error>> {
    if let Ok(given) = env::var("PALISADE_BPF_CLANG") {
        return Ok(given);
    }
    let is_there = |compiler: &&str| {
        let version = Command::new(compiler).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let found = COMPILERS.into_iter().find(is_there);
    found.map(str::to_owned).ok_or_else(|| {
        "the BPF programs are compiled by clang 15 or later, and there is none: `make setup` installs it on Debian and \
         Ubuntu; PALISADE_BPF_CLANG names another, PALISADE_BPF_OBJECTS a folder with compiled objects"
            .into()
    })
}
