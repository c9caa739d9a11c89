#!/usr/bin/env bash
# A conversation with `worldagent serve --http`, as described in docs/reference/sidecar.md, with curl and bash alone.
#
#   WORLDAGENT_SIDECAR_TOKEN=... ./conversation.sh http://127.0.0.1:8200/mcp
#
# The regular expressions below read ids, numbers and plain words. For texts with quotes in them, use jq.
set -euo pipefail

url=${1:?name the address of the sidecar}
: "${WORLDAGENT_SIDECAR_TOKEN:?set it to the bearer token}"
place='"account":"ana","thread":"curl"'

# post TOOL ARGUMENTS: calls a tool and prints the answer. Neither the token nor the text is an argument of a process.
post() {
  local meta='"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}'
  printf '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"%s","arguments":{%s},"_meta":{%s}}}' \
    "$1" "$2" "$meta,\"progressToken\":1" |
    curl --silent --no-buffer --config <(printf 'header = "Authorization: Bearer %s"' "$WORLDAGENT_SIDECAR_TOKEN") \
      --header 'Content-Type: application/json' --header 'Accept: application/json, text/event-stream' \
      --header 'MCP-Protocol-Version: 2026-07-28' --header 'Mcp-Method: tools/call' --header "Mcp-Name: $1" \
      --data-binary @- "$url"
}

# call TOOL ARGUMENTS: shows the text as it comes. Sets the turn's id, the number of its last event, and the answer,
# which is empty if the connection broke. With `quit_after` it disconnects after so many events, and sets `quit`.
call() {
  local line received=0
  answer='' quit=''
  while IFS= read -r line || [[ -n $line ]]; do
    line=${line%$'\r'}
    if [[ $line == *'"method":"notifications/progress"'* ]]; then
      show "${line//\\\"/\"}" # the event is JSON in a text of JSON
      if ((++received == ${quit_after:-0})); then
        quit_after='' quit=yes
        break
      fi
    elif [[ $line == *'"jsonrpc"'* || $line == *'"error"'* ]]; then
      answer=${line#*'"structuredContent":'}
    fi
  done < <(post "$1" "$2")
}

# show EVENT: new types can appear, so unknown ones are skipped.
show() {
  [[ $1 =~ \"turn_id\":\"([^\"]*)\" ]] && turn=${BASH_REMATCH[1]}
  [[ $1 =~ \"seq\":([0-9]+) ]] && seq=${BASH_REMATCH[1]}
  case $1 in
    *'"type":"text_delta"'*) [[ $1 =~ \"text\":\"([^\"]*)\" ]] && printf %s "${BASH_REMATCH[1]}" ;;
    *'"interim":true'*) echo ;; # the text before calls is not the answer
    *'"type":"text_replaced"'*) [[ $1 =~ \"text\":\"([^\"]*)\" ]] && printf '\n%s' "${BASH_REMATCH[1]}" ;;
  esac
}

# hold TEXT: a turn from a message to its end, even if the connection breaks or the sidecar is killed.
hold() {
  turn='' seq=0 tries=0
  # With the same key, a repeated call is the same turn. It continues without its client.
  local tool=converse arguments="$place,\"text\":\"$1\",\"key\":\"$$-$RANDOM-$RANDOM\",\"detach\":true"
  while ((tries++ < 60)); do
    call "$tool" "$arguments,\"after\":$seq"
    [[ $answer =~ \"status\":\"([a-z_]*)\" ]] && status=${BASH_REMATCH[1]} || status=
    case $status in
      '' | running)
        if [[ $answer == *'"error":'* && $answer != *'"retryable":true'* ]]; then break; fi
        if [[ -n $quit ]]; then
          echo && echo "[disconnected after event $seq, and back]"
        elif [[ -z $answer ]]; then
          sleep 0.5
        fi
        if [[ -n $turn ]]; then tool=events arguments="\"account\":\"ana\",\"turn_id\":\"$turn\""; fi
        ;;
      cut_off | stopped) tool=resume arguments=$place ;;
      paused) ask && tool=resume arguments="$place,\"answers\":{\"$pause\":$decision}" ;;
      *) break ;;
    esac
  done
  echo && echo "[${status:-$answer}]"
}

# ask: asks about the call that the turn waits for. Sets `pause` and `decision`.
ask() {
  local waits=${answer#*'"pauses":['} yes
  [[ $waits =~ \"id\":\"([^\"]*)\" ]] && pause=${BASH_REMATCH[1]}
  [[ $waits =~ \"function\":\"([^\"]*)\" ]] && echo "[may it call ${BASH_REMATCH[1]}? y or n]"
  IFS= read -r yes
  [[ $waits =~ \"hash\":\"([^\"]*)\" ]] && decision="{\"approve\":{\"hash\":\"${BASH_REMATCH[1]}\"}}"
  if [[ ! $yes =~ ^[Yy]([Ee][Ss])?$ ]]; then decision='{"reject":{}}'; fi
}

# say TEXT: runs a turn. If none started, because the address or the token is wrong, it ends the script.
say() {
  echo "> $1"
  hold "$1"
  [[ -n $status ]] || exit 1
}

quit_after=4
say 'count to twelve'
say 'buy a hat'
(sleep 1 && post cancel "$place" >/dev/null) &
say 'count again'
wait
