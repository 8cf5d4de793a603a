// For functions that files compiled for different instruction sets share. A copy of an inline function that such a file
// keeps could be the one that the linker takes for the whole program, and a processor without the instructions would
// run into it: so no file may keep one.
#pragma once

#define MUSTER_INLINE __attribute__((always_inline)) inline
