//! Whole networks as text.

use benches::zoo;
use compiler::text::{compare_modules, parse_module, print_module};
use compiler::verify::verify_module;

#[test]
fn networks_verify_and_round_trip() {
    for name in ["squeezenet1_1", "mobilenet_v3_small", "densenet121", "unet"] {
        let m = zoo::build(name, 1, 0).unwrap_or_else(|e| panic!("{name}: {e}"));
        verify_module(&m).unwrap_or_else(|e| panic!("{name}: {e:?}"));
        let text = print_module(&m);
        let again = parse_module(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        compare_modules(&m, &again).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(print_module(&again), text, "{name}");
    }
}
