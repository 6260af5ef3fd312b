//! The arguments of a run.

use std::time::Duration;

use super::{
    catalogue::{ALL, Expect, Test},
    measure::MIN_SAMPLES,
};

/// The arguments of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Samples of each test, both classes together.
    pub samples: usize,
    /// The only test to run beside the controls that leak.
    pub only: Option<&'static str>,
    /// Time for all tests together, shared out as they come; no bound if there is none.
    pub limit: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self { samples: 100_000, only: None, limit: None }
    }
}

impl Options {
    /// Reads `[--samples N] [--only NAME] [--minutes M]`.
    ///
    /// # Errors
    /// One line that names the first word that cannot be read.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let (pairs, rest) = words.as_chunks::<2>();
        for &[option, value] in pairs {
            let number =
                || value.parse::<u32>().map_err(|_| format!("{option} {value:?}: no number"));
            match option {
                "--samples" => options.samples = number()? as usize,
                "--only" => options.only = Some(find(value)?.name),
                "--minutes" => options.limit = Some(Duration::from_mins(number()?.into())),
                _ => return Err(format!("no option {option:?}")),
            }
        }
        match rest {
            _ if options.samples < MIN_SAMPLES => {
                Err(format!("{} samples say nothing; at least {MIN_SAMPLES} do", options.samples))
            }
            [word] => Err(format!("cannot read {word:?}")),
            _ => Ok(options),
        }
    }

    /// Returns the tests to run, in order.
    #[must_use]
    pub fn tests(&self) -> Vec<&'static Test> {
        let wanted = |test: &&Test| match self.only {
            Some(name) => test.name == name || matches!(test.expect, Expect::Leak | Expect::Hidden),
            None => true,
        };
        ALL.iter().filter(wanted).collect()
    }
}

fn find(name: &str) -> Result<&'static Test, String> {
    ALL.iter().find(|test| test.name == name).ok_or_else(|| {
        let names: Vec<&str> = ALL.iter().map(|test| test.name).collect();
        format!("no test {name:?}; there are {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        assert_eq!(Options::parse(&[]), Ok(Options::default()));
        let words = ["--samples", "5000", "--only", "pow-ones", "--minutes", "4"];
        let limit = Some(Duration::from_secs(240));
        let expected = Options { samples: 5000, only: Some("pow-ones"), limit };
        assert_eq!(Options::parse(&words), Ok(expected.clone()));
        let names: Vec<_> = expected.tests().iter().map(|test| test.name).collect();
        assert_eq!(
            names,
            [
                "control-compare",
                "control-branch",
                "control-table",
                "control-cached",
                "control-public",
                "pow-ones",
            ]
        );
        assert_eq!(Options::default().tests().len(), ALL.len());
    }

    #[test]
    fn misuse_is_named() {
        let complaint = |words: &[&str]| Options::parse(words).unwrap_err();
        assert!(complaint(&["--only", "tea"]).starts_with("no test \"tea\"; there are control-"));
        assert_eq!(complaint(&["--samples", "many"]), "--samples \"many\": no number");
        assert_eq!(complaint(&["--samples", "999"]), "999 samples say nothing; at least 1000 do");
        assert_eq!(complaint(&["--brew", "tea"]), "no option \"--brew\"");
        assert_eq!(complaint(&["--only"]), "cannot read \"--only\"");
    }
}
