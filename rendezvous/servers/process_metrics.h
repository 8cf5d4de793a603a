// The usual families about this process in GET /metrics.
#pragma once

#include "rendezvous/base/text/metrics_page.h"

namespace muster::rendezvous {

/// process_cpu_seconds_total, process_resident_memory_bytes, process_start_time_seconds. What the host does not tell is
/// left out.
void add_process_metrics(MetricsPage& page);

}  // namespace muster::rendezvous
