//! The schemas of all records.

use crate::ceilings::CeilingsRecord;
use crate::compile::Compilation;
use crate::devices::{DevicesRecord, ProfilesRecord, QuirksRecord};
use crate::diff::DiffRecord;
use crate::edit::EditedRecord;
use crate::extract::ExtractedRecord;
use crate::report::RunRecord;
use crate::tuning_files::{CalibratedRecord, CheckedRecord, MendedRecord, ShownRecord};
use crate::zoo::ZooRecord;
use compiler::inspect::Inspection;
use compiler::trace::driver_stats::StatsRecord;
use compiler::trace::{Ceilings, Errors, Times};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use weft::BundleContents;
use workbench::bench::record::BenchRecord;
use workbench::bisect::Bisection;
use workbench::compare::record::{ComparisonRecord, FolderRecord, NothingToCompare};
use workbench::error::ErrorRecord;
use workbench::explain::record::{
    GroupRecord, KernelExplained, LeftExplained, ModelExplained, NodeExplained, PartRecord, SortedExplained,
};
use workbench::match_models::ModelDiff;
use workbench::record::Versioned;
use workbench::results::Added;
use workbench::tune::record::Tuned;

/// Parts of several records, which have a table of their own.
pub const SHARED: &[&str] = &["times", "errors", "ceilings", "driver_stats", "group", "part"];

fn schema<T: JsonSchema>() -> Schema {
    SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>()
}

/// The JSON schema of each record, by the heading of its table in docs/json.md.
pub fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        ("error", schema::<Versioned<ErrorRecord>>()),
        ("devices", schema::<Versioned<DevicesRecord>>()),
        ("devices --quirks", schema::<Versioned<QuirksRecord>>()),
        ("devices --profiles", schema::<Versioned<ProfilesRecord>>()),
        ("zoo", schema::<Versioned<ZooRecord>>()),
        ("inspect", schema::<Versioned<Inspection>>()),
        ("bundle", schema::<Versioned<BundleContents<'_>>>()),
        ("compile", schema::<Compilation<'_>>()),
        ("explain", schema::<Versioned<ModelExplained>>()),
        ("explain --node", schema::<Versioned<NodeExplained>>()),
        ("explain --sort", schema::<Versioned<SortedExplained>>()),
        ("explain --left", schema::<Versioned<LeftExplained>>()),
        ("explain --kernel", schema::<Versioned<KernelExplained>>()),
        ("run", schema::<Versioned<RunRecord>>()),
        ("compare", schema::<Versioned<ComparisonRecord>>()),
        ("compare --data", schema::<Versioned<FolderRecord>>()),
        ("nothing to compare", schema::<Versioned<NothingToCompare>>()),
        ("extract", schema::<Versioned<ExtractedRecord<'_>>>()),
        ("bisect", schema::<Versioned<Bisection>>()),
        ("tune", schema::<Versioned<Tuned>>()),
        ("tuning show", schema::<Versioned<ShownRecord>>()),
        ("tuning check", schema::<Versioned<CheckedRecord<'_>>>()),
        ("tuning check --mend", schema::<Versioned<MendedRecord>>()),
        ("tuning calibrate", schema::<Versioned<CalibratedRecord<'_>>>()),
        ("edit", schema::<Versioned<EditedRecord>>()),
        ("bench", schema::<BenchRecord>()),
        ("bench --ceilings", schema::<Versioned<CeilingsRecord>>()),
        ("results add", schema::<Versioned<Added>>()),
        ("diff", schema::<Versioned<DiffRecord<'_>>>()),
        ("diff of models", schema::<Versioned<ModelDiff>>()),
        ("times", schema::<Times>()),
        ("errors", schema::<Errors>()),
        ("ceilings", schema::<Ceilings>()),
        ("driver_stats", schema::<StatsRecord>()),
        ("group", schema::<GroupRecord>()),
        ("part", schema::<PartRecord>()),
    ]
}
