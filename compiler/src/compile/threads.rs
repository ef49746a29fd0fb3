//! The same work for many requests, on threads where the platform has them.

/// Bytes of a thread's stack: recursion follows the depth of expressions and loops.
#[cfg(not(target_family = "wasm"))]
const STACK: usize = 16 << 20;

/// Does `work` for the numbers below `count` on all processors; `done` gets each result on this thread, in any order.
///
/// # Errors
/// When there are no threads to be had.
#[cfg(not(target_family = "wasm"))]
pub(super) fn each<T: Send>(
    count: usize,
    work: &(dyn Fn(usize) -> T + Sync),
    done: &mut dyn FnMut(usize, T),
) -> Result<(), String> {
    let pool = rayon::ThreadPoolBuilder::new().stack_size(STACK).build().map_err(|e| format!("no threads: {e}"))?;
    pool.in_place_scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        for i in 0..count {
            let sender = sender.clone();
            // A receiver that is gone is one that has panicked.
            scope.spawn(move |_| drop(sender.send((i, work(i)))));
        }
        drop(sender);
        receiver.iter().for_each(|(i, result)| done(i, result));
    });
    Ok(())
}

/// Does `work` for the numbers below `count`, and gives each result to `done`. WebAssembly has one thread, whose stack
/// is chosen when a module is linked.
///
/// # Errors
/// None.
#[cfg(target_family = "wasm")]
pub(super) fn each<T: Send>(
    count: usize,
    work: &(dyn Fn(usize) -> T + Sync),
    done: &mut dyn FnMut(usize, T),
) -> Result<(), String> {
    (0..count).for_each(|i| done(i, work(i)));
    Ok(())
}
