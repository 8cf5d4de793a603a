// musterd's options, and the configuration file that may hold them.
#pragma once

#include <boost/program_options.hpp>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::rendezvous {

boost::program_options::options_description describe_options();

/// The long names of `known`.
std::vector<std::string> option_names(const boost::program_options::options_description& known);

/// The place of each option of a file, by name, as messages print it ("/etc/muster/musterd.conf:3: port").
using OptionPlaces = std::map<std::string, std::string>;

/// Reads the lines `name = value` of a file and records the place of each. invalid_argument, with the line: an unknown
/// or repeated option, or a flag that is neither yes nor no. Other errors: the file cannot be read.
Result<boost::program_options::parsed_options> read_options(const std::string& path,
                                                            const boost::program_options::options_description& known,
                                                            OptionPlaces& places);

}  // namespace muster::rendezvous
