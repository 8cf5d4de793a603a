// Boost.Asio's TLS, compiled here once (as connect/asio_implementation.cpp does for the rest of Asio).
#include <boost/asio/ssl/impl/src.hpp>
