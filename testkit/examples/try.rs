//! x
#![allow(warnings, clippy::all)]
use palisade_testkit::cluster::*;
use palisade_testkit::runtimes::RuntimePrograms;
use std::path::Path;
fn main() {
    // args: runtimes found by target/debug/examples/try -> nth(3)
    let programs = RuntimePrograms::cluster().unwrap();
    let t = std::time::Instant::now();
    let mut c = Cluster::start("try", &programs, Controllers::All).unwrap();
    eprintln!(
        "control plane {:?} in {}",
        t.elapsed(),
        c.folder().display()
    );
    for _ in 0..2 {
        if let Err(e) = c.add_node() {
            eprintln!("ERR {e}\n{}", c.logs());
            std::thread::sleep(std::time::Duration::from_secs(600));
            return;
        }
        eprintln!("node {:?}", t.elapsed());
    }
    let image = std::env::args().nth(1).unwrap();
    c.import_image(Path::new(&image)).unwrap();
    eprintln!("image {:?}", t.elapsed());
    match c.roll_out(Path::new("deploy/palisade.yaml"), "palisade") {
        Err(e) => eprintln!("ERR {e}"),
        Ok(()) => {}
    }
    eprintln!("rolled out {:?}", t.elapsed());
    match c.wait_for_nodes() {
        Err(e) => eprintln!("ERR {e}"),
        Ok(()) => {}
    }
    eprintln!("ready {:?}", t.elapsed());
    eprintln!("lan {} kubeconfig {}", c.lan().name(), c.folder().display());
    while !Path::new("/tmp/try-stop").exists() {
        std::thread::sleep(std::time::Duration::from_millis(300));
    }
}
