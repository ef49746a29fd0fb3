//! Profiles in files: JSON, as the command and a page write them.

use crate::profile::DeviceProfile;

/// The most that a limit of a profile may be, where kernels count by it.
const MOST: u32 = 1 << 24;

/// The profile in a file's text.
///
/// # Errors
/// Text that is no profile, or values that no device has, by name.
pub fn parse_profile(text: &str) -> Result<DeviceProfile, String> {
    let p: DeviceProfile = serde_json::from_str(text).map_err(|e| format!("this is no profile: {e}"))?;
    let between = |name: &str, value: u64, (least, most): (u64, u64)| match value {
        n if (least..=most).contains(&n) => Ok(()),
        n => Err(format!("a profile's `{name}` is from {least} to {most}, not {n}")),
    };
    between("shared_memory", p.shared_memory.into(), (0, MOST.into()))?;
    between("max_invocations", p.max_invocations.into(), (1, MOST.into()))?;
    for n in p.max_workgroup_size {
        between("max_workgroup_size", n.into(), (1, MOST.into()))?;
    }
    between("max_workgroups", p.max_workgroups.into(), (1, i32::MAX as u64))?;
    between("max_storage_buffers", p.max_storage_buffers.into(), (1, MOST.into()))?;
    between("max_binding", p.max_binding, (1 << 16, 1 << 50))?;
    between("max_buffer", p.max_buffer, (1 << 16, 1 << 50))?;
    between("immediates", p.immediates.into(), (0, MOST.into()))?;
    between("cores", p.cores.into(), (1, 1 << 20))?;
    between("registers", p.registers.into(), (0, 1 << 16))?;
    between("packed_channels", p.packed_channels.into(), (0, 16))?;
    let (least, most) = p.subgroup;
    if !(p.subgroup == (0, 0) || least.is_power_of_two() && most.is_power_of_two() && least <= most && most <= 1024) {
        return Err(format!("a profile's `subgroup` is two powers of 2, or two zeros, not {least} and {most}"));
    }
    let rates = [p.gflops, p.gb_s, p.cache_gb_s, p.workgroup_gb_s, p.matrix_gflops, p.subgroup_gops, p.launch_ns];
    if !rates.iter().chain(&p.factors.to_array()).all(|r| r.is_finite() && *r >= 0.0) {
        return Err("a profile's rates are finite numbers from 0 on".into());
    }
    Ok(p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_come_back_and_strange_ones_are_refused() {
        for p in DeviceProfile::all() {
            let text = serde_json::to_string(&p).expect("a profile is JSON");
            assert_eq!(parse_profile(&text).as_ref(), Ok(&p));
        }
        let said = |name: &str, value: serde_json::Value| {
            let mut p = serde_json::to_value(DeviceProfile::baseline()).expect("a profile is JSON");
            p[name] = value;
            parse_profile(&p.to_string()).expect_err(name)
        };
        assert_eq!(said("max_invocations", 0.into()), "a profile's `max_invocations` is from 1 to 16777216, not 0");
        assert!(said("subgroup", serde_json::json!([3, 8])).contains("two powers of 2"));
        assert!(said("subgroup", serde_json::json!([0, 8])).contains("two powers of 2"));
        assert!(said("gb_s", (-1.0).into()).contains("finite"));
        assert!(said("cores", "many".into()).starts_with("this is no profile"));
        assert!(parse_profile("[").is_err_and(|e| e.starts_with("this is no profile")));
    }
}
