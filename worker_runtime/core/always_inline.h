// For functions shared by files that are compiled for different instruction sets. The linker may keep such a file's
// copy of an inline function for the whole program, and a processor without those instructions would crash in it.
// Therefore no file may keep a copy.
#pragma once

#define MUSTER_INLINE __attribute__((always_inline)) inline
