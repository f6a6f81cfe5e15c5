//! Variables of an application's environment, as `docker run` takes them.

use anyhow::{Context, Result, bail};
use clap::Args;
use std::path::{Path, PathBuf};

/// Options that say variables.
#[derive(Clone, Debug, Default, Args)]
pub struct Variables {
    /// Set a variable of the (first) application's environment; a name alone takes this shell's value, if it
    /// has one.
    #[arg(short, long = "env", value_name = "NAME[=VALUE]", value_parser = Variable::read)]
    pub environment: Vec<Variable>,
    /// Set those in a file, one in each line as for --env; lines with `#` first are comments. What --env says
    /// holds.
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    name: String,
    /// What this shell has, if nothing.
    value: Option<String>,
}

impl Variable {
    fn read(text: &str) -> Result<Variable, String> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (text, None),
        };
        if name.is_empty() || text.contains('\0') {
            return Err("expected NAME=VALUE or NAME".to_owned());
        }
        Ok(Variable { name: name.to_owned(), value })
    }
}

impl Variables {
    /// Whether none is said.
    pub fn is_empty(&self) -> bool {
        self.environment.is_empty() && self.env_file.is_empty()
    }

    /// Names and values, where `of_shell` has those of names alone; of equal names the last holds.
    ///
    /// # Errors
    /// A file that cannot be read, or a line in it that says no variable.
    pub fn all(&self, of_shell: impl Fn(&str) -> Option<String>) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        for path in &self.env_file {
            all.extend(file(path)?);
        }
        all.extend(self.environment.iter().cloned());
        let known = |Variable { name, value }: Variable| {
            let value = value.or_else(|| of_shell(&name))?;
            Some((name, value))
        };
        Ok(all.into_iter().filter_map(known).collect())
    }
}

fn file(path: &Path) -> Result<Vec<Variable>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("--env-file {}: cannot read it", path.display()))?;
    let mut variables = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match Variable::read(line) {
            Ok(variable) if !variable.name.contains(char::is_whitespace) => variables.push(variable),
            _ => bail!(
                "--env-file {}: line {}: `{line}`: expected NAME=VALUE or NAME",
                path.display(),
                index + 1
            ),
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(environment: &[&str], files: &[&str]) -> Result<Vec<(String, String)>> {
        let directory = tempfile::tempdir()?;
        let mut variables = Variables::default();
        for (number, text) in files.iter().enumerate() {
            let path = directory.path().join(number.to_string());
            std::fs::write(&path, text)?;
            variables.env_file.push(path);
        }
        variables.environment = environment
            .iter()
            .map(|text| Variable::read(text).map_err(anyhow::Error::msg))
            .collect::<Result<_>>()?;
        variables.all(|name| (name == "HERE").then(|| "mine".to_owned()))
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn values_come_from_options_files_and_the_shell() {
        let said = all(&["A=1=2", "HERE", "ABSENT", "EMPTY="], &[]).expect("sound");
        assert_eq!(said, pairs(&[("A", "1=2"), ("HERE", "mine"), ("EMPTY", "")]));
        let said = all(&["A=2"], &["# words\n\nA=1\n  B=x y\nHERE\nABSENT\n", "B=2"]).expect("sound");
        assert_eq!(said, pairs(&[("A", "1"), ("B", "x y"), ("HERE", "mine"), ("B", "2"), ("A", "2")]));
    }

    #[test]
    fn what_is_none_is_refused_with_its_place() {
        assert!(Variable::read("=x").is_err() && Variable::read("").is_err());
        let error = all(&[], &["A=1\nexport B=2\n"]).expect_err("no name has blanks").to_string();
        assert!(error.contains("line 2") && error.contains("export B=2"), "{error}");
        let missing = Variables { env_file: vec!["/absent".into()], ..Variables::default() };
        assert!(missing.all(|_| None).is_err_and(|error| error.to_string().contains("/absent")));
    }
}
