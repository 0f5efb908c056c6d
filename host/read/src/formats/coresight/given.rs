//! Symbol files that the user gives for a hardware trace, each applied to the code that it is of.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use kymo_coresight::fit::{Applies, Fit, ImageId};
use kymo_coresight::input::Buffer;
use kymo_coresight::memory::{Image, Layout, Memory, build_id};
use kymo_coresight::perf::Missing;
use kymo_coresight::remarks::Remark;
use kymo_event::Addr;
use kymo_symbols::{DebugDirectories, Error, Function, Symbols};

/// Symbol files given for a hardware trace.
#[derive(Debug, Default)]
pub struct GivenSymbols {
    files: Vec<File>,
    /// Separate files of debug information, by the memory address of the contents of the file that they are of.
    separate: HashMap<usize, PathBuf>,
    /// Whether code is that of processes, which are loaded anywhere.
    is_of_processes: bool,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    symbols: Symbols,
    /// Comparison with the trace's code; `None` for a list of symbols, which has no code.
    fit: Option<Fit>,
    /// Why it is not used.
    refusal: Option<String>,
}

impl File {
    /// Returns whether it names code of an image at run-time addresses; `None` for code without an image.
    fn applies(&self, image: Option<ImageId>, is_of_processes: bool) -> bool {
        let Some(fit) = &self.fit else {
            return true;
        };
        let is_unchecked = !is_of_processes && !fit.is_used() && !fit.is_other();
        let is_placed = |image| fit.applies(image) == Some(Applies::AtAddresses);
        match image {
            Some(image) => is_placed(image) || is_unchecked,
            None => is_unchecked || !is_of_processes && fit.is_used(),
        }
    }
}

impl GivenSymbols {
    /// Reads the files, and compares them with the code of a trace. `missing`: the mappings without a file, if the trace
    /// is a recording of processes and not of a machine's memory. Also searches `debug` for separate files of debug
    /// information of all images. Returns remarks on files that are not of the code.
    ///
    /// # Errors
    /// When a file cannot be read or has no symbols.
    pub fn open(
        paths: &[PathBuf],
        buffers: &[Buffer],
        missing: Option<&[Missing]>,
        debug: &DebugDirectories,
    ) -> Result<(Self, Vec<Remark>), Error> {
        let mut files = Vec::new();
        let is_of_processes = missing.is_some();
        let (separate, mut remarks) = separate(buffers, debug);
        for path in paths {
            let symbols = Symbols::open(path)?;
            let bytes = kymo_symbols::read_file(path, kymo_symbols::LARGEST_FILE);
            let bytes = bytes.map_err(|source| Error::Io {
                path: path.clone(),
                source,
            })?;
            let fit = Fit::of(&bytes, buffers);
            let remark = fit.as_ref().and_then(|fit| fit.remark(path));
            let remark = remark.or_else(|| {
                let fit = fit.as_ref()?;
                let missing = missing.filter(|_| !fit.is_used())?;
                Some(elsewhere(path, &bytes, missing))
            });
            let is_used = fit.as_ref().is_none_or(Fit::is_used);
            let refusal = remark.as_ref().filter(|_| !is_used);
            files.push(File {
                path: path.clone(),
                symbols,
                fit,
                refusal: refusal.map(|remark| remark.text.clone()),
            });
            remarks.extend(remark);
        }
        let given = GivenSymbols {
            files,
            separate,
            is_of_processes,
        };
        Ok((given, remarks))
    }

    /// Completes the layout of an image's file that is stripped of its mapping symbols, from the files with its names.
    pub fn complete(&self, image: &Image, layout: &mut Layout) {
        let id = image.into();
        let linked = self.files.iter().filter(|file| {
            let fit = file.fit.as_ref();
            fit.is_some_and(|fit| fit.applies(id) == Some(Applies::Linked))
        });
        let paths = linked.map(|file| &file.path);
        for path in paths.chain(self.separate.get(&contents(image))) {
            if layout.has_marks() {
                return;
            }
            let bytes = kymo_symbols::read_file(path, kymo_symbols::LARGEST_FILE);
            if let Some(of) = bytes.ok().and_then(|bytes| Layout::of_elf(&bytes)) {
                layout.take_marks(of);
            }
        }
    }

    /// Returns the symbols of the files that an image is of, at link addresses: of the given ones, and of the separate
    /// file of debug information.
    pub fn linked(&self, image: &Image) -> Symbols {
        let contents = contents(image);
        let image = image.into();
        let all = Symbols::new();
        for file in &self.files {
            let fit = file.fit.as_ref();
            if fit.is_some_and(|fit| fit.applies(image) == Some(Applies::Linked)) {
                all.merge(file.symbols.clone());
            }
        }
        let separate = self.separate.get(&contents);
        if let Some(symbols) = separate.and_then(|path| Symbols::open(path).ok()) {
            all.merge(symbols);
        }
        all
    }

    /// Returns the symbols that apply to an image at run-time addresses, or, for `None`, to code without an image.
    pub fn at(&self, image: Option<ImageId>) -> impl Iterator<Item = &Symbols> {
        let files = self.files.iter();
        let files = files.filter(move |file| file.applies(image, self.is_of_processes));
        files.map(|file| &file.symbols)
    }

    /// Returns the function at a run-time address.
    pub fn function_at(&self, image: Option<ImageId>, address: Addr) -> Option<Function<'_>> {
        self.at(image)
            .find_map(|symbols| symbols.function_at(address))
    }

    /// Returns why files are not used, one text for each.
    pub fn refusals(&self) -> impl Iterator<Item = &str> {
        let refusals = self.files.iter().map(|file| file.refusal.as_deref());
        refusals.flatten()
    }

    /// Returns all symbols.
    pub fn all(&self) -> impl Iterator<Item = &Symbols> {
        self.files.iter().map(|file| &file.symbols)
    }

    /// Returns the files that are not of all code of the trace at its run-time addresses.
    pub fn settled(&self) -> impl Iterator<Item = &Path> {
        let files = self.files.iter().filter(|file| match &file.fit {
            Some(fit) => self.is_of_processes || fit.is_other(),
            None => false,
        });
        files.map(|file| file.path.as_path())
    }
}

/// Returns the remark on a file with none of a recording's code. `missing`: the mappings without a file.
fn elsewhere(path: &Path, bytes: &[u8], missing: &[Missing]) -> Remark {
    let id = build_id(bytes).unwrap_or_default();
    let mut mappings = missing.iter().map(|missing| &missing.mapping);
    // Recorders pad short build IDs with zeros.
    let same = mappings.find(|it| !id.is_empty() && it.build_id.starts_with(&id));
    let path = path.display();
    let text = match same {
        Some(mapping) => format!(
            "{path} is not used: it has the build ID of {}, of which there is no file, and no code itself (a file of debug \
             information)",
            mapping.path
        ),
        None => format!(
            "{path} is not used for names: no file of the recording has its build ID or its code"
        ),
    };
    Remark::warning("", text)
}

/// Returns the memory address of an image's file contents, which distinguishes files of the same name.
pub(super) fn contents(image: &Image) -> usize {
    image.bytes.file().as_ptr().addr()
}

/// Finds the separate files of debug information of all images. Also returns remarks on files in their places that are
/// not used.
fn separate(
    buffers: &[Buffer],
    debug: &DebugDirectories,
) -> (HashMap<usize, PathBuf>, Vec<Remark>) {
    let images = buffers.iter().flat_map(|buffer| &buffer.code);
    let (mut known, mut found, mut remarks) = (HashSet::new(), HashMap::new(), Vec::new());
    for image in images.flat_map(Memory::images) {
        if !known.insert(contents(image)) {
            continue;
        }
        let bytes = &image.bytes;
        let name = Path::new(&image.name);
        let separate = debug.of_file(bytes.file(), bytes.path(), name);
        if let Some(file) = separate.file {
            found.insert(contents(image), file);
        }
        let refused = separate.refused.iter().map(|refused| {
            let file = refused.file.display();
            let (name, why) = (&image.name, &refused.why);
            let text = format!("{file} is not used for the names of {name}: {why}");
            Remark::warning("", text)
        });
        remarks.extend(refused);
    }
    (found, remarks)
}
