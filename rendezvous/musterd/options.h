// musterd's options: what there is of them, and the file that may hold them.
#pragma once

#include <boost/program_options.hpp>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/base/error.h"

namespace muster::rendezvous {

boost::program_options::options_description describe_options();

/// Their long names.
std::vector<std::string> option_names(const boost::program_options::options_description& known);

/// The options of a file: by name, where each stands, as messages say it ("/etc/muster/musterd.conf:3: port").
using OptionPlaces = std::map<std::string, std::string>;

/// Reads the lines `name = value` of a file, of the options that may stand in one, and notes where each stands.
/// invalid_argument: one that there is not, a second time, or a flag that is neither yes nor no, with the line; else
/// why the file cannot be read.
Result<boost::program_options::parsed_options> read_options(const std::string& path,
                                                            const boost::program_options::options_description& known,
                                                            OptionPlaces& places);

}  // namespace muster::rendezvous
