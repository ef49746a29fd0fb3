//! Instruction sets: which bodies of the vector operations and tiles run.

use std::sync::OnceLock;

/// An instruction set that bodies are compiled for; the binary itself is built for the plain target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Isa {
    /// x86-64 with AVX-512 (foundation, bytes and words), and what [`Isa::Avx2`] has.
    Avx512,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// AArch64, which always has it.
    Neon,
    /// What every machine runs.
    Portable,
}

impl Isa {
    /// Every instruction set, the widest of a family first.
    pub const ALL: [Isa; 4] = [Isa::Avx512, Isa::Avx2, Isa::Neon, Isa::Portable];

    /// True if this machine runs its bodies.
    pub fn is_available(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                let own = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
                own && Isa::Avx2.is_available()
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
            }
            Isa::Neon => cfg!(target_arch = "aarch64"),
            Isa::Portable => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// True if it multiplies four bytes at once (VNNI).
    pub(crate) fn multiplies_bytes(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => is_x86_feature_detected!("avx512vnni"),
            _ => false,
        }
    }

    /// The widest one that this machine has.
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| Isa::ALL.into_iter().find(|i| i.is_available()).unwrap_or(Isa::Portable))
    }

    /// The one of that name: `avx512`, `avx2`, `neon` or `portable`.
    pub fn named(name: &str) -> Option<Isa> {
        Isa::ALL.into_iter().find(|i| i.short_name() == name)
    }

    /// Its name in options.
    pub fn short_name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512",
            Isa::Avx2 => "avx2",
            Isa::Neon => "neon",
            Isa::Portable => "portable",
        }
    }

    /// Name of its features.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Avx512 => "avx512f",
            Isa::Avx2 => "avx2+fma",
            Isa::Neon => "neon",
            Isa::Portable => "portable",
        }
    }

    /// f32 operations a nanosecond of its register tiles on one core at about 3 GHz, in 10^9 a second.
    pub(crate) fn gflops(self) -> f64 {
        match self {
            Isa::Avx512 => 150.0,
            Isa::Avx2 => 80.0,
            Isa::Neon => 40.0,
            Isa::Portable => 24.0,
        }
    }

    /// Rows and columns of a register tile: accumulators, a vector of the right operand's columns and one broadcast
    /// element of the left operand fit the registers.
    pub fn tile(self) -> [u32; 2] {
        match self {
            Isa::Avx512 => [14, 32],
            Isa::Avx2 => [5, 16],
            Isa::Neon => [8, 12],
            Isa::Portable => [4, 16],
        }
    }
}

/// Compiles a function once for each instruction set: `name(isa, ...)` runs the body of that one.
macro_rules! versions {
    ($(#[$doc:meta])* fn $name:ident $(<$($g:ident : $bound:path),*>)? ($($arg:ident : $t:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name $(<$($g: $bound),*>)? (isa: $crate::isa::Isa, $($arg: $t),*) {
            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            fn body $(<$($g: $bound),*>)? ($($arg: $t),*) $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$($g: $bound),*>)? ($($arg: $t),*) { body($($arg),*) }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$($g: $bound),*>)? ($($arg: $t),*) { body($($arg),*) }
            match isa {
                // SAFETY: `Isa` values other than `Portable` and `Neon` come from `Isa::is_available`, which asks the
                // processor.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512 => unsafe { avx512($($arg),*) },
                // SAFETY: as above.
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 => unsafe { avx2($($arg),*) },
                _ => body($($arg),*),
            }
        }
    };
}
pub(crate) use versions;
