//! Packs a folder of inputs, as libFuzzer has them, into the text that is kept, and the other way round.
//!
//!   corpus pack FOLDER TEXT
//!   corpus unpack TEXT FOLDER

#![allow(clippy::disallowed_methods, reason = "files are what it is for")]

use palisade_fuzzing::corpus;
use std::error::Error;
use std::fs;
use std::path::Path;

fn pack(folder: &Path, text: &Path) -> Result<(), Box<dyn Error>> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        inputs.push(fs::read(entry?.path())?);
    }
    Ok(fs::write(text, corpus::to_text(inputs))?)
}

fn unpack(text: &Path, folder: &Path) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(folder)?;
    let inputs = corpus::parse(&fs::read_to_string(text)?)
        .map_err(|error| format!("line {} is no input", error.line))?;
    for (number, input) in inputs.iter().enumerate() {
        fs::write(folder.join(format!("kept-{number}")), input)?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["pack", folder, text] => pack(folder.as_ref(), text.as_ref()),
        ["unpack", text, folder] => unpack(text.as_ref(), folder.as_ref()),
        _ => Err("corpus pack FOLDER TEXT, or corpus unpack TEXT FOLDER".into()),
    }
}
