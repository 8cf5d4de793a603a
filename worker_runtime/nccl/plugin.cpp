#include "worker_runtime/nccl/plugin.h"

#include "worker_runtime/nccl/nccl_process.h"
#include "worker_runtime/nccl/nccl_transport.h"

extern "C" __attribute__((visibility("default"))) const muster::runtime::NcclPlugin* muster_nccl_plugin() {
    static const muster::runtime::NcclPlugin plugin{.build = muster::runtime::nccl_plugin_build,
                                                    .make = &muster::runtime::NcclTransport::make,
                                                    .pin = &muster::runtime::NcclProcess::pin};
    return &plugin;
}
