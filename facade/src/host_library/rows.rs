//! Tables of functions in libraries.

use libloading::{Library, Symbol};
use runtime_gpu::HostFunctions;
use std::ffi::{CStr, c_char};
use std::sync::Arc;

/// A row of a library's table of functions.
pub trait Row {
    /// The function that gives the table.
    const SYMBOL: &'static [u8];
    /// The version of the interface, which the library is asked for.
    const INTERFACE: u32;
    /// Null ends the table.
    fn name(&self) -> *const c_char;
    /// Registers the function, which keeps the library loaded.
    ///
    /// # Errors
    /// The missing part of the row.
    fn register(&self, name: &str, library: &Arc<Library>, functions: &mut HostFunctions) -> Result<(), String>;
}

/// Registers the rows of a table; false if the library has none.
pub fn register_table<R: Row>(library: &Arc<Library>, functions: &mut HostFunctions) -> Result<bool, String> {
    // SAFETY: the header declares this type for the symbol.
    let table = unsafe { library.get::<unsafe extern "C" fn(u32) -> *const R>(R::SYMBOL) };
    let Ok(table): Result<Symbol<'_, _>, _> = table else { return Ok(false) };
    // SAFETY: it takes a number and gives a table, as declared.
    let rows = unsafe { table(R::INTERFACE) };
    if rows.is_null() {
        return Err(format!("does not have version {} of the interface", R::INTERFACE));
    }
    for i in 0.. {
        // SAFETY: the table has rows up to the one without a name, which is not passed.
        let row = unsafe { &*rows.add(i) };
        if row.name().is_null() {
            break;
        }
        // SAFETY: a name is a text that ends in 0.
        let name = unsafe { CStr::from_ptr(row.name()) }.to_str().map_err(|e| format!("name {i}: {e}"))?;
        row.register(name, library, functions).map_err(|why| format!("`{name}` {why}"))?;
    }
    Ok(true)
}
