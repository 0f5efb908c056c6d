//! Symbols of the files that a trace introduces while it is read: programs and libraries of processes (LTTng).

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use kymo_event::{Batch, Function, FunctionId, Mapping, TraceInfo};
use kymo_read::{ReadError, Source};
use kymo_symbols::{Place, Symbols};

use super::images::{self, Found};
use super::symbols::{CTF, is_file};
use crate::args::SymbolArgs;

/// A source that provides symbols for functions before it delivers them: the file of a function is read when the
/// function first appears.
pub(super) struct Placing<S> {
    source: S,
    symbols: Arc<Symbols>,
    files: Files,
    /// The number of functions examined so far.
    met: usize,
    /// Examined functions whose file the trace has not introduced yet.
    unplaced: Vec<FunctionId>,
    /// The state of the mappings at the last examination ([`Identities::mapped`](kymo_event::Identities::mapped)).
    mapped: u64,
    tried: HashSet<Place>,
}

/// Maximum number of functions that wait for their file. They are examined again with each new mapping.
const MOST_UNPLACED: usize = 1 << 12;

impl<S: Source> Placing<S> {
    pub(super) fn new(source: S, symbols: &Arc<Symbols>, args: &SymbolArgs) -> Self {
        Self {
            source,
            symbols: Arc::clone(symbols),
            files: Files::new(args),
            met: 0,
            unplaced: Vec::new(),
            mapped: 0,
            tried: HashSet::new(),
        }
    }

    fn place(&mut self) {
        let info = self.source.info_mut();
        let identities = &info.identities;
        let functions = identities.functions();
        if !info.is_of(CTF) || (functions.len() == self.met && identities.mapped() == self.mapped) {
            return;
        }
        let new =
            (self.met..functions.len()).map(|id| FunctionId(u32::try_from(id).unwrap_or(u32::MAX)));
        let old = match identities.mapped() == self.mapped {
            true => Vec::new(),
            false => std::mem::take(&mut self.unplaced),
        };
        let mut remarks = Vec::new();
        for id in old.into_iter().chain(new) {
            // Functions that the trace itself names need no file.
            let Some(function) = identities.function(id).filter(|it| it.name.is_none()) else {
                continue;
            };
            let Some((place, mapping)) = mapping(info, function) else {
                if self.unplaced.len() < MOST_UNPLACED {
                    self.unplaced.push(id);
                }
                continue;
            };
            if self.tried.insert(place) && !self.symbols.knows(place) {
                let symbols = self.files.of(info, mapping, &mut remarks);
                if symbols.is_empty() && mapping.build_id.is_some() {
                    self.symbols.set_absent(place);
                }
                self.symbols.merge(symbols.placed(place, mapping.start));
            }
        }
        self.met = functions.len();
        self.mapped = identities.mapped();
        info.remarks.extend(remarks);
    }
}

/// The file that contains a function.
fn mapping<'i>(info: &'i TraceInfo, function: &Function) -> Option<(Place, &'i Mapping)> {
    let space = info.identities.space(function.space)?;
    let number = space.file_of(function)?;
    let place = Place {
        space: function.space,
        mapping: Some(number),
    };
    Some((place, space.mappings.get(number as usize)?))
}

impl<S: Source> Source for Placing<S> {
    fn threads(&self) -> usize {
        self.source.threads()
    }

    fn info(&self) -> &TraceInfo {
        self.source.info()
    }

    fn info_mut(&mut self) -> &mut TraceInfo {
        self.source.info_mut()
    }

    fn fill(&mut self, batch: &mut Batch) -> Result<bool, ReadError> {
        let more = self.source.fill(batch)?;
        self.place();
        Ok(more)
    }
}

/// Files, each read only once for all processes.
struct Files {
    debug_directories: Vec<PathBuf>,
    given: Vec<PathBuf>,
    /// The given files, once one of them may be needed.
    opened: Option<Vec<(PathBuf, Symbols)>>,
    found: HashMap<(String, Option<Vec<u8>>), Symbols>,
}

impl Files {
    fn new(args: &SymbolArgs) -> Self {
        Self {
            debug_directories: args.debug_dir.clone(),
            given: args.files(),
            opened: None,
            found: HashMap::new(),
        }
    }

    /// The symbols of a mapped file, at its link addresses; adds remarks if it is missing.
    fn of(&mut self, info: &TraceInfo, mapping: &Mapping, remarks: &mut Vec<String>) -> &Symbols {
        let given = &self.given;
        let opened = self.opened.get_or_insert_with(|| {
            let opened = given
                .iter()
                .map(|path| Some((path.clone(), Symbols::open(path).ok()?)));
            opened.flatten().collect()
        });
        if let Some((_, file)) = opened
            .iter()
            .find(|(path, file)| is_file(info, mapping, path, file))
        {
            return file;
        }
        let key = (mapping.path.clone(), mapping.build_id.clone());
        self.found.entry(key).or_insert_with(|| {
            let found = images::find(mapping, &self.debug_directories);
            let Found { symbols, other, .. } = found;
            remarks.extend(found.refused);
            match other {
                Some(build_id) => remarks.push(images::other_build(mapping, &build_id)),
                None if symbols.is_empty() => remarks.push(images::absent(&images::file(mapping))),
                None => {}
            }
            symbols
        })
    }
}
