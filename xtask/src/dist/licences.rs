//! The licences of the packages that are in a binary.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::command::{cargo, output, root};

/// The package that the archive's binary is of.
pub(crate) const OWN: &str = "ciphergram";
/// Licences that ask for no more than their text, by the names of SPDX.
const PERMISSIVE: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];
/// Data in that binary, and under which licence.
pub(crate) const DATA: [&str; 1] = [
    "Optical Recognition of Handwritten Digits, the images of the demonstration: CC-BY-4.0, by E. Alpaydin and \
     C. Kaynak, https://doi.org/10.24432/C50P49",
];
/// Beginnings of names of files that hold a licence or what belongs to one, in lower case.
const BEGINNINGS: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// A package that is in a binary.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// An expression of SPDX.
    licence: String,
    authors: Vec<String>,
    folder: PathBuf,
}

/// Returns the packages that are in the binary of one of ours, by name.
///
/// # Errors
///
/// Returns one line that says which command failed and how, or which package has no licence that is known.
pub(crate) fn packages(of: &str) -> Result<Vec<Package>, String> {
    let tree = "tree --locked --edges normal --prefix none --format {p} --package";
    let tree = output(cargo(tree).arg(of))?;
    let used: BTreeSet<(String, String)> = tree.lines().filter_map(named).collect();
    let metadata = output(&mut cargo("metadata --locked --format-version 1"))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|e| e.to_string())?;
    let all = metadata["packages"].as_array().into_iter().flatten().filter_map(package);
    let mut packages: Vec<_> =
        all.filter(|p| used.contains(&(p.name.clone(), p.version.clone()))).collect();
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    match packages.iter().find(|package| !is_permissive(&package.licence)) {
        None => Ok(packages),
        Some(Package { name, licence, .. }) => Err(format!("{name}: unknown licence {licence:?}")),
    }
}

/// Reads a line of a tree: a name and a version.
fn named(line: &str) -> Option<(String, String)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.to_owned(), words.next()?.strip_prefix('v')?.to_owned()))
}

fn package(value: &Value) -> Option<Package> {
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let authors = value["authors"].as_array().into_iter().flatten();
    Some(Package {
        name: text("name")?,
        version: text("version")?,
        licence: text("license").unwrap_or_default(),
        authors: authors.filter_map(|author| author.as_str().map(str::to_owned)).collect(),
        folder: Path::new(value["manifest_path"].as_str()?).parent()?.to_owned(),
    })
}

/// Returns whether one may choose so from an expression that all that is left asks for a text only.
fn is_permissive(licence: &str) -> bool {
    // Each of those joined by AND, and one of those joined by OR; older ones write a slash for OR.
    let plain = licence.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|all| {
        let mut choices = all.split(" OR ").map(|one| one.split(" WITH ").next().unwrap_or(one));
        choices.any(|one| PERMISSIVE.contains(&one.trim()))
    })
}

/// Returns the file beside a binary: what each package is licensed under, data too, and every text once.
///
/// # Errors
///
/// Returns one line that names a file that cannot be read.
pub(crate) fn text(packages: &[Package], data: &[&str]) -> Result<String, String> {
    let foreign = packages.iter().filter(|package| !package.folder.starts_with(root()));
    let mut list = String::from(
        "Ciphergram's binary holds code of these packages and of Rust's standard library (MIT OR Apache-2.0,\n\
         the Rust Project developers). The texts of their licences follow, each after those that it is of; of\n\
         licences to choose from, Apache-2.0 or MIT is taken where they are among them.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in foreign {
        let Package { name, version, licence, authors, folder } = package;
        let label = format!("{name} {version}");
        let found = licence_files(folder)?;
        list += &format!("{label}: {licence}");
        if found.is_empty() {
            list += &format!(", by {}; its package holds no text", authors.join(", "));
        }
        list += "\n";
        for text in found {
            texts.entry(text).or_default().push(label.clone());
        }
    }
    if !data.is_empty() {
        list += "\nBeside code it holds this data:\n\n";
    }
    data.iter().for_each(|label| list += &format!("{label}\n"));
    let mut texts: Vec<_> = texts.into_iter().map(|(text, labels)| (labels, text)).collect();
    texts.sort();
    for (labels, text) in texts {
        list += &format!("\n{}\n{}\n\n{text}", "=".repeat(100), labels.join(", "));
    }
    Ok(list)
}

/// Returns the texts of the files of a folder that are named like licences.
fn licence_files(folder: &Path) -> Result<Vec<String>, String> {
    let wrong = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(wrong)?.collect::<Result<Vec<_>, _>>();
    let mut paths: Vec<_> = entries.map_err(wrong)?.into_iter().map(|e| e.path()).collect();
    paths.sort();
    let is_licence = |path: &&PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        path.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    };
    paths.iter().filter(is_licence).map(|path| licence_text(path)).collect()
}

/// Returns the text of a file, lines ended as in all others.
fn licence_text(path: &Path) -> Result<String, String> {
    let bytes = fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(|line| format!("{}\n", line.trim_end())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_permissive_if_a_choice_is() {
        for licence in [
            "MIT",
            "MIT/Apache-2.0",
            "MIT OR Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 OR MIT",
            "Apache-2.0 WITH LLVM-exception OR BSD-9",
        ] {
            assert!(is_permissive(licence), "{licence}");
        }
        for licence in ["", "GPL-3.0", "MIT AND GPL-3.0", "MPL-2.0", "(MIT OR Zlib) AND LGPL-2.1"] {
            assert!(!is_permissive(licence), "{licence}");
        }
    }

    #[test]
    fn every_package_of_the_binary_is_listed_with_its_text() {
        let packages = packages(OWN).unwrap();
        let text = text(&packages, &DATA).unwrap();
        for name in ["clap ", "safetensors ", "snow ", "aws-lc-sys "] {
            assert!(text.lines().any(|line| line.starts_with(name)), "{name}");
        }
        assert!(!text.contains("\nciphergram"), "our own licence stands beside");
        assert!(text.contains("CC-BY-4.0, by E. Alpaydin"));
        assert!(packages.iter().any(|package| package.name == OWN));
        let apache = text.matches("TERMS AND CONDITIONS FOR USE").count();
        assert!((1..packages.len() / 2).contains(&apache), "{apache} texts of one licence");
    }
    #[test]
    fn the_python_package_holds_other_packages_and_no_data() {
        let text = text(&packages("ciphergram-py").unwrap(), &[]).unwrap();
        let holds = |name: &str| text.lines().any(|line| line.starts_with(name));
        assert!(holds("pyo3 ") && holds("aws-lc-sys ") && !holds("clap "));
        assert!(!text.contains("this data") && !text.contains("\nciphergram"), "{text}");
    }
}
