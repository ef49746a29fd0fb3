//! Things that kernels of processors are counted in, and the price of each for each instruction set: the one table.
//!
//! The prices are nanoseconds of one core. `scripts/cpu_prices.py` fits them to the tables `benches/tables/cpu-*.jsonl`
//! (measured units of networks; non-negative least squares of relative errors) and prints the rows of [`TABLE`].

use crate::profile::DeviceProfile;

/// Declares the counts by name, in the order of the table's columns.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Something that kernels of processors are counted in.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Count { $($(#[$doc])* $name),* }
        /// The counts' names.
        pub const COUNTS: &[&str] = &[$(stringify!($name)),*];
    };
}

counts! {
    /// A kernel.
    Kernel,
    /// A task.
    Task,
    /// A tile of a product: its rows are found, its bounds are checked.
    ProductTile,
    /// A part of it that has its sums in registers.
    ProductPart,
    /// A part for each element of its depth and taps.
    ProductStep,
    /// The same, where rows of the right operand share a set of the first cache.
    ProductFarColumn,
    /// A multiplication of vectors.
    ProductVector,
    /// A row of a tap of a tile in a border, which has a pointer of its own.
    ProductEdge,
    /// A tap that is a tile of its own.
    ProductLoneTap,
    /// An element of a right operand that a task copies.
    ProductCopy,
    /// An element of rows that lie so that they share a set of the first cache, which are copied.
    ProductFarRow,
    /// An element of more rows than the ways of two sets that they share.
    ProductNearRow,
    /// A vector of results, for each operation and operand of what is made of it.
    ProductResult,
    /// A result whose row is no whole vector.
    ProductScattered,
    /// A tile of a window whose lanes lie next to each other.
    WindowTile,
    /// A part of it that has its sums in registers.
    WindowPart,
    /// A vector of a tap.
    WindowVector,
    /// A row of a tile in a border.
    WindowEdge,
    /// A leaf that begins.
    Leaf,
    /// A run of lanes.
    Run,
    /// An operation of a vector.
    Operation,
    /// An operation of a lane of a leaf that has more conditions than strips.
    General,
    /// A shift of an integer, and what is done with its bits: no strip has words without a sign. A lane of a reduction
    /// whose place or condition is a quotient takes as long.
    Bits,
    /// A load or store of a vector.
    Access,
    /// A lane whose place is found by itself.
    Apart,
    /// A vector of exponentials.
    Function,
    /// A result that sums lanes up.
    FoldResult,
    /// A vector that is added to a sum across lanes.
    Fold,
    /// A byte that is read or written at least once.
    Byte,
    /// The same, of kernels whose bytes are more than a core's second cache.
    FarByte,
    /// A byte that is read again from a core's second cache.
    Again,
    /// A byte that is read again from beyond it.
    FarAgain,
}

/// How often each count occurs.
pub type Counts = [f64; COUNTS.len()];

/// The prices of an instruction set.
pub(super) struct Prices {
    /// Rows and columns of its register tile, by which it is known.
    pub tile: [u32; 2],
    /// Nanoseconds of each count, in the order of [`COUNTS`].
    pub ns: Counts,
}

/// Bytes of a core's first and second cache.
pub(super) const FIRST_CACHE: f64 = 32e3;
pub(super) const SECOND_CACHE: f64 = 1e6;

/// AVX-512 and AVX2, both measured on an EPYC. Rows of `scripts/cpu_prices.py`.
static TABLE: [Prices; 2] = [
    Prices {
        tile: [14, 32],
        ns: [
            202.8,    // Kernel
            0.0,      // Task
            99.73,    // ProductTile
            3.094,    // ProductPart
            0.01061,  // ProductStep
            0.0,      // ProductFarColumn
            0.109,    // ProductVector
            0.304,    // ProductEdge
            800.0,    // ProductLoneTap
            0.5973,   // ProductCopy
            0.02978,  // ProductFarRow
            0.07133,  // ProductNearRow
            0.1111,   // ProductResult
            3.0,      // ProductScattered
            221.7,    // WindowTile
            9.053,    // WindowPart
            0.3599,   // WindowVector
            0.0,      // WindowEdge
            24.58,    // Leaf
            3.0,      // Run
            0.0,      // Operation
            0.07589,  // General
            12.0,     // Bits
            1.034,    // Access
            0.2067,   // Apart
            11.62,    // Function
            10.0,     // FoldResult
            0.0,      // Fold
            0.0,      // Byte
            0.001994, // FarByte
            0.005128, // Again
            0.02,     // FarAgain
        ],
    },
    Prices {
        tile: [5, 16],
        ns: [
            193.0,     // Kernel
            0.0,       // Task
            75.01,     // ProductTile
            1.796,     // ProductPart
            0.5502,    // ProductStep
            0.4168,    // ProductFarColumn
            0.08055,   // ProductVector
            0.0,       // ProductEdge
            800.0,     // ProductLoneTap
            0.0,       // ProductCopy
            0.0,       // ProductFarRow
            0.0,       // ProductNearRow
            0.07705,   // ProductResult
            3.0,       // ProductScattered
            86.23,     // WindowTile
            18.39,     // WindowPart
            0.3176,    // WindowVector
            2.121,     // WindowEdge
            50.37,     // Leaf
            3.0,       // Run
            0.0,       // Operation
            0.1067,    // General
            12.0,      // Bits
            0.3195,    // Access
            0.2442,    // Apart
            6.274,     // Function
            10.0,      // FoldResult
            0.0,       // Fold
            0.0,       // Byte
            0.0007417, // FarByte
            0.002864,  // Again
            0.02,      // FarAgain
        ],
    },
];

/// Time of an instruction set that was not measured by AVX2's: its vectors are half as long, and its operations two.
const UNMEASURED: f64 = 2.0;

impl Prices {
    /// The prices for a profile's register tile, and by what they are multiplied; `None` where it has none.
    pub fn of(profile: &DeviceProfile) -> Option<(&'static Prices, f64)> {
        let tile = profile.machine.register_tile()?;
        let found = TABLE.iter().find(|p| p.tile == tile);
        Some(found.map_or((&TABLE[1], UNMEASURED), |p| (p, 1.0)))
    }
    /// Nanoseconds of these counts.
    pub fn total(&self, counts: &Counts) -> f64 {
        self.ns.iter().zip(counts).map(|(ns, n)| ns * n).sum()
    }
}
