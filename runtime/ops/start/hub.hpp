// Where the ranks of a job meet: a thread of rank 0 to which every rank holds a connection as long
// as it lives, and a second one that MPICH speaks PMI-1 over.
//
// Lines of text both ways. A rank says first:
//   tensoropt 1 control RANK SIZE MACHINE      answered by: accepted TOKEN, or: refused WHY
//   tensoropt 1 pmi RANK SIZE MACHINE TOKEN    on its second connection; PMI-1 follows
// When all ranks are there the hub listens no longer and sends `ready` to each. From then on:
//   bye              the rank ends in order        end WHY        end now, the job has failed
//   fail WHY         it ends because of an error   where          what are you doing?
//   left STATUS      its process exits so          over           rank 0 has ended in order
//   at WHAT          what it is doing              at RANK WHAT   to rank 0: what a rank answered
//   ask              from rank 0: ask all
// Nothing is encrypted, and nobody proves who he is.
#pragma once

#include <list>
#include <string>
#include <vector>

#include "start/pmi_server.hpp"
#include "start/sockets.hpp"

namespace tensoropt {

class Hub {
 public:
  // Waits `timeout_s` for `size` ranks; they have a second connection `with_pmi`.
  Hub(Socket listener, int size, bool with_pmi, double timeout_s);

  // Takes a connection made in this process; before `run`.
  void adopt(Socket socket);

  // Serves until rank 0 has ended in order, or the job has failed and everyone knows.
  void run();

 private:
  enum class Role { Unknown, Control, Pmi };
  struct Guest {
    Socket socket;
    Moment until;  // to say who it is
    Role role = Role::Unknown;
    int rank = -1;
    std::string in{}, out{};
    bool is_due = true;  // something has come, or can be sent
    bool said_bye = false, is_leaving = false;  // leaving: gone once `out` is sent
  };

  void wait();
  void accept_all();
  void serve(Guest &guest);
  void take(Guest &guest, const std::string &line);
  void greet(Guest &guest, const std::string &line);
  std::string why_not(const std::string &line, Guest &guest, std::string &token);
  void refuse(Guest &guest, const std::string &why);
  void admit(Guest &guest, const std::string &machine);
  void start_if_complete();
  void take_control(Guest &guest, const std::string &line);
  void take_pmi(Guest &guest, const std::string &line);
  void lost(Guest &guest);
  void sweep();
  void check_time();
  void end(const std::string &why);
  void send_to_all(const std::string &line, int except);
  void flush(Moment until);
  bool is_over() const;
  std::string name(int rank) const;
  std::string missing() const;
  Guest *guest_of(Role role, int rank);

  Socket listener_;
  std::size_t size_;
  bool with_pmi_;
  double timeout_s_;
  Moment until_;
  std::list<Guest> guests_{};
  std::vector<std::string> tokens_, machines_;
  std::string last_refusal_{};
  PmiServer pmi_;
  bool is_ready_ = false, has_ended_ = false, is_leaving_ = false;
};

// Runs the one hub of this process in a thread of its own.
void run_aside(Hub *hub);

// At the exit of a process: until its hub has told the others that the job is over, or for a while.
// Else they would take the end of this process for that of a rank that failed.
void wait_for_hub();

}  // namespace tensoropt
