//! The command line of the tasks: `tidy`, `crdgen`, `render` and `sim`.

use std::path::Path;
use std::process::ExitCode;

use larder_xtask::{render, root, tidy};

const USAGE: &str = "usage: larder-xtask tidy | crdgen | render [HELM] | \
                     sim [--world ledger|pool] (--seed N | --count N [--from N])";

fn main() -> anyhow::Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .as_slice()
    {
        ["tidy"] => print_findings(),
        ["crdgen"] => generate_crds(),
        ["render"] => render_chart(None),
        ["render", helm] => render_chart(Some(Path::new(helm))),
        ["sim", wish @ ..] => simulate(wish),
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}

fn print_findings() -> anyhow::Result<ExitCode> {
    let findings = tidy::check(&root())?;
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("{} findings", findings.len());
    Ok(ExitCode::FAILURE)
}

fn render_chart(helm: Option<&Path>) -> anyhow::Result<ExitCode> {
    for path in render::write(&root(), helm)? {
        println!("{}", path.display());
    }
    if helm.is_none() {
        eprintln!("no helm was named, so manifests/install.yaml stays as it is");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(feature = "sim")]
fn simulate(words: &[&str]) -> anyhow::Result<ExitCode> {
    let Some(wish) = larder_xtask::sim::parse(words) else {
        eprintln!("{USAGE}");
        return Ok(ExitCode::from(2));
    };
    if larder_xtask::sim::run(&root(), wish)? {
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

#[cfg(not(feature = "sim"))]
fn simulate(_: &[&str]) -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build leaves the simulator out; add `--features sim` to cargo's flags")
}

#[cfg(feature = "crdgen")]
fn generate_crds() -> anyhow::Result<ExitCode> {
    for path in larder_xtask::crdgen::write(&root())? {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(not(feature = "crdgen"))]
fn generate_crds() -> anyhow::Result<ExitCode> {
    anyhow::bail!("this build leaves the custom resources out; run `make generate`")
}
