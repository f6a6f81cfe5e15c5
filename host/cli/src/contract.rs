//! `--utility FILE`: a contract for an application whose manifest has none, or another; and `--control PORT`,
//! where it can be asked about that.

use anyhow::{Result, bail};
use clap::Args;
use nom_image::manifest::{self, BundleManifest};
use std::path::{Path, PathBuf};

/// What users pay for an application.
#[derive(Clone, Debug, Default, Args)]
pub struct ContractOptions {
    /// Have the (first) application earn by the contract of this file: its table `[utility]`, and what its
    /// `environment` says of knobs (docs/earn.md).
    #[arg(long, value_name = "FILE")]
    pub utility: Option<PathBuf>,
    /// Have the (first) application answer questions about what it serves, and take orders, at this TCP port
    /// of the machine (docs/control.md); publish it with `-p`.
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub control: Option<u16>,
}

impl ContractOptions {
    /// The bundle of a manifest, with this contract and, if there are any, these arguments for its first
    /// application.
    ///
    /// # Errors
    /// What is wrong in the manifest or in the contract.
    pub fn bundle(&self, path: &Path, arguments: Option<&[String]>) -> Result<BundleManifest> {
        let mut bundle = match &self.utility {
            Some(file) => under(path, file)?,
            None => manifest::load(path)?,
        };
        if let Some(port) = self.control {
            bundle.applications[0].environment.insert("control".to_owned(), port.to_string());
        }
        Ok(match arguments {
            Some(arguments) => bundle.with_arguments(arguments),
            None => bundle,
        })
    }

    /// Where nothing of that can be given.
    ///
    /// # Errors
    /// If one is.
    pub fn refuse(&self, app: &str) -> Result<()> {
        let given = match (&self.utility, self.control) {
            (Some(file), _) => format!("--utility {}", file.display()),
            (None, Some(port)) => format!("--control {port}"),
            (None, None) => return Ok(()),
        };
        bail!("{given}: {app} is an image: its contract and its control port were given when it was built")
    }
}

fn under(path: &Path, file: &Path) -> Result<BundleManifest> {
    let plain = manifest::load(path)?;
    let bundle = manifest::load_under(path, file)?;
    let (own, given) = (&plain.applications[0], &bundle.applications[0]);
    if (&own.name, &own.program) != (&given.name, &given.program) {
        bail!(
            "--utility {}: it is a manifest of `{}`, expected a contract alone, such as \
             apps/contracts/penalty.toml",
            file.display(),
            given.name
        );
    }
    if given.utility.is_none() {
        bail!("--utility {}: expected a table `[utility]` (docs/earn.md)", file.display());
    }
    Ok(bundle)
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPLICATION: &str = "name = 'shop'\nprogram = 'shop'\nenvironment = { a = '1', control = '1' }\n";
    const CONTRACT: &str = "[utility]\nunit = 'operation'\nterm = [{ function = 'value', alpha = 2.0 }]\n";

    fn given(contract: &str) -> Result<BundleManifest> {
        let directory = tempfile::tempdir()?;
        let [application, file] = ["app.toml", "contract.toml"].map(|name| directory.path().join(name));
        std::fs::write(&application, APPLICATION)?;
        std::fs::write(&file, contract)?;
        ContractOptions { utility: Some(file), control: None }.bundle(&application, None)
    }

    #[test]
    fn an_application_earns_by_a_contract_of_another_file() {
        let bundle =
            given(&format!("environment = {{ control = '9' }}\n{CONTRACT}")).expect("a good contract");
        let application = &bundle.applications[0];
        assert!(application.utility.is_some());
        let variable = |name: &str| application.environment.get(name).map(String::as_str);
        assert_eq!((variable("a"), variable("control")), (Some("1"), Some("9")));
    }

    #[test]
    fn a_control_port_goes_into_the_environment_and_not_into_an_image() {
        let directory = tempfile::tempdir().expect("a directory");
        let application = directory.path().join("app.toml");
        std::fs::write(&application, APPLICATION).expect("written");
        let options = ContractOptions { utility: None, control: Some(9999) };
        let bundle = options.bundle(&application, None).expect("good");
        assert_eq!(bundle.applications[0].environment["control"], "9999");
        let error = options.refuse("shop.img").expect_err("an image has its own").to_string();
        assert!(error.starts_with("--control 9999: shop.img is an image: "), "{error}");
    }

    #[test]
    fn what_is_no_contract_is_named() {
        for (text, expected) in [
            ("environment = { a = '2' }", "expected a table `[utility]`"),
            (&format!("name = 'other'\n{CONTRACT}"), "it is a manifest of `other`"),
            ("[utility]\nunit = 'Gbit'\n", "contract.toml"),
            ("[utility", "contract.toml"),
        ] {
            let error = given(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
