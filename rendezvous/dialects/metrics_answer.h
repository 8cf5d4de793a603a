// The answer to GET /metrics. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "rendezvous/base/text/metrics_page.h"
#include "rendezvous/dialects/http_message.h"

namespace muster::rendezvous {

/// A page of more bytes is sent by gzip where the scraper accepts it, as Prometheus does. Smaller ones are not, because
/// it takes time of the loop.
inline constexpr std::size_t plain_metrics_bytes_max = 256 << 10;

/// `page` in the format that the scraper prefers.
HttpPage metrics_answer(const HttpRequest& request, const std::function<std::string(MetricsFormat)>& page);

}  // namespace muster::rendezvous
