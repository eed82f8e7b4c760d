//! The process: its limit on open files, and the memory that its allocator retains.
#![allow(unsafe_code)]

/// Returns the maximum number of file descriptors of the process (`RLIMIT_NOFILE`); `None` without a
/// limit.
pub fn max_files() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one structure, to a live one.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    if result != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return None;
    }
    usize::try_from(limit.rlim_cur).ok()
}

/// Makes the allocator put large tables into mappings of their own, which return to the system when
/// they are freed, and trim free memory at the end of a heap. By default it raises both thresholds with
/// the sizes it sees, and retains tens of megabytes after a busy hour. To be called once, before the
/// process has threads.
pub fn limit_memory_retention() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets parameters of the allocator; both are documented in mallopt(3).
    unsafe {
        const THRESHOLD: libc::c_int = 128 * 1024;
        libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD);
        libc::mallopt(libc::M_TRIM_THRESHOLD, THRESHOLD);
    }
}

/// Returns unused memory to the system. The allocator otherwise retains what a burst needed, for as long
/// as the process runs. To be called by the thread that owns the memory, also before its first burst,
/// so that it starts in the state that it returns to.
pub fn trim_memory() {
    #[cfg(target_env = "gnu")]
    {
        gather_cached_blocks();
        // SAFETY: malloc_trim has no precondition; it takes the allocator's own locks.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

/// Replaces the free blocks that the allocator caches for the thread by adjacent ones. The cache holds a
/// few blocks of each small size and never releases them. They are those freed last, from all over the
/// heap, and each keeps its page in use.
#[cfg(target_env = "gnu")]
fn gather_cached_blocks() {
    // glibc's tcache: 64 sizes, 16 octets apart from 24 on, of each at most seven blocks.
    const SMALLEST: usize = 24;
    const STEP: usize = 16;
    const SIZES: usize = 64;
    const CACHED: usize = 7;
    let take = || -> Vec<Vec<u8>> {
        let size_of = |i: usize| SMALLEST + STEP * (i / CACHED);
        // Hidden from the optimiser, which would leave out what is never used.
        (0..SIZES * CACHED).map(|i| std::hint::black_box(Vec::with_capacity(size_of(i)))).collect()
    };
    let scattered = take();
    let together = take();
    drop(together);
    drop(scattered);
}
