//! The program. Everything it does is in the library beside it.

/// Many threads allocate at once, and the system's allocator makes them wait for each other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    tidegate_server::main()
}
