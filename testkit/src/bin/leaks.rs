//! Lists what tests left behind, one line each: namespaces, links and nftables tables.
//!
//! It judges nothing and removes nothing; `scripts/test` compares its lists before and after.

use std::io;

fn main() -> io::Result<()> {
    for leak in palisade_testkit::lab::find_leaks()? {
        println!("{leak}");
    }
    Ok(())
}
