#include "worker_runtime/cpu/reduce_kernels.h"
