#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "command_line.h"

// A standard stream that the caller closed would give its number to the next file opened, a checkpoint say,
// and what is printed would go there. The other way round than it would be used, so that using it is an error
// and not a loss.
static void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(fd, F_GETFD) < 0)
      static_cast<void>(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY));
}

int main(int argc, char** argv) {
  hold_standard_streams();
  ::signal(SIGPIPE,
           SIG_IGN);  // a reader that went away is an error of the write, and no reason to lose a run
  ::signal(SIGXFSZ, SIG_IGN);  // a file past `ulimit -f` is an error of the write too
  std::vector<std::string> environment;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    environment.emplace_back(*variable);
  return strata::cli::run_command_line(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc),
                                       std::move(environment), stdout, stderr);
}
