// Where the ranks of a job meet: a thread of rank 0 to which every rank holds a connection as long
// as it lives, and a second one that MPICH speaks PMI-1 over.
//
// Lines of text both ways. On each connection both sides first prove that they know the job's
// secret (identity.hpp), the rank before the hub:
//   tensoropt 3 ROLE RANK SIZE MACHINE JOB TOKEN NONCE     ROLE: control or pmi
//                     answered by: challenge NONCE
//   proof PROOF       answered by: accepted PROOF TOKEN, or denied PROOF WHY
// Before the hub has its proof it says no more than: refused WHAT (line, version or secret), which
// anybody could say. TOKEN is the one that the control connection was given, "-" on that. PMI-1
// follows on the other.
// When all ranks are there the hub listens no longer and sends `ready JOB` to each, JOB being the
// name that MPICH knows the job by. From then on:
//   bye              the rank ends in order        end WHY        end now, the job has failed
//   fail WHY         it ends because of an error   where          what are you doing?
//   left STATUS      its process exits so          over           rank 0 has ended in order
//   at WHAT          what it is doing              at RANK WHAT   to rank 0: what a rank answered
//   ask              from rank 0: ask all
//   here             it lives                      call           do you live?
// Who fails may fail because another was killed, whose connection is lost a little later: before
// the hub believes it, it calls the others, and one that is lost meanwhile is what the job ended
// by. Nothing is encrypted, nor are later lines proved (docs/decisions/0031).
#pragma once

#include <list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "start/identity.hpp"
#include "start/pmi_server.hpp"
#include "start/sockets.hpp"

namespace tensoropt {

class Hub {
 public:
  struct Wanted {
    int size;
    bool with_pmi;  // ranks have a second connection
    double timeout_s;
    Identity identity;
    std::string name{};  // of the job, to MPICH: a new one unless given
  };

  // Waits for ranks; `listener` may be none.
  Hub(Socket listener, const Wanted& wanted);

  // Takes a connection made in this process; before `run`.
  void adopt(Socket socket);

  // Serves until rank 0 has ended in order, or the job has failed and everyone knows.
  void run();

 private:
  enum class Role { Unknown, Control, Pmi };
  struct Hello {
    Role role = Role::Unknown;
    int rank = -1, size = 0;
    std::string machine{}, job{}, token{};
  };
  struct Guest {
    Socket socket;
    Moment since;               // when it came
    Role role = Role::Unknown;  // and no rank, until it has proved them
    int rank = -1;
    Talk talk{};
    std::string in{}, out{};
    bool is_due = true;                         // something has come, or can be sent
    bool said_bye = false, is_leaving = false;  // leaving: gone once `out` is sent
  };

  void wait();
  void accept_all();
  void serve(Guest& guest);
  void take(Guest& guest, const std::string& line);
  void greet(Guest& guest, const std::string& line);
  void check_proof(Guest& guest, const std::string& line);
  std::string why_not(const Hello& hello);
  enum class Refusal { None, Line, Version, Secret, Denied };  // what tells more comes later
  void refuse(Guest& guest, Refusal what);
  void deny(Guest& guest, const std::string& why);
  void answer(Guest& guest, const std::string& verb, const std::string& rest);
  void remember(Refusal what, const std::string& why);
  void admit(Guest& guest, const Hello& hello);
  void start_if_complete();
  void take_control(Guest& guest, const std::string& line);
  void take_pmi(Guest& guest, const std::string& line);
  void lost(Guest& guest);
  void accuse(int rank, const std::string& why);
  void answered(int rank);
  void sweep();
  void believe();
  void let_go_of_strangers(Moment since);
  Clock::duration patience() const;
  bool is_crowded() const;
  void check_time();
  Moment next_look() const;
  void end(const std::string& why);
  void send_to_all(const std::string& line, int except);
  void flush(Moment until);
  bool is_over() const;
  std::string name(int rank) const;
  std::string missing() const;
  Guest* guest_of(Role role, int rank);

  struct Verdict {  // what ranks say that the job ends by, while they are being called
    int rank;
    std::string why;
    Moment until;
    std::set<int> silent;
  };

  Socket listener_;
  Wanted wanted_;
  std::size_t size_;
  Moment until_;
  std::list<Guest> guests_{};
  std::vector<std::string> tokens_, machines_;
  Refusal refusal_ = Refusal::None;
  std::string why_refused_{};
  std::string name_;  // of the job, to MPICH
  PmiServer pmi_;
  std::optional<Verdict> verdict_{};
  bool is_ready_ = false, has_ended_ = false, is_leaving_ = false;
};

// Runs the one hub of this process in a thread of its own.
void run_aside(Hub* hub);

// At the exit of a process: until its hub has told the others that the job is over, or for a while.
// Else they would take the end of this process for that of a rank that failed.
void wait_for_hub();

}  // namespace tensoropt
