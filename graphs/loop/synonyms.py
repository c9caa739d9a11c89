"""Everyday words in the place of those that tools are described with, in English and German."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_ENDINGS: Final = ("ings", "ing", "ed", "ies", "es", "s", "en", "e")
_SHORTEST: Final = 3  # characters that remain of a word
_COMPOUND, _PART = 9, 5  # characters from which a word is looked through for others, and of these

_GROUPS: Final = """
mail mails nachricht brief line letter : email mail message
mailen anschreiben schreib schreiben write compose drop : send message email create
post postfach inbox : mailbox email inbox
message nachricht note say tell inform : message post send
answer antwort antworten beantworten respond : reply respond answer
weiterleiten pass onward : forward
junk spam werbung scam : spam
newsletter abbestellen abmelden : unsubscribe newsletter list
tag etikett markieren label categorise : label
automatically automatisch whenever always : rule filter automation automatic recurring
away abwesend abwesenheit off out holiday vacation : vacation office absence leave
attached anhang attachment : attachment attached
save speichern keep store sichern merken : save store write download draft
yet later entwurf unsent : draft
calendar kalender agenda diary planner : calendar event
termin appointment meeting besprechung treffen date dinner lunch : event calendar meeting
eintragen trag put enter einplanen plan : create add write
verschieb verschieben postpone push move delay reschedule bring shift : update change move time
absagen cancel call scrap stop : cancel delete
einladung einladen invite invitation : invitation invite attendees
zusagen accept decline no yes refuse absagen : accept decline respond
frei zeit available free meet when wann slot : free available availability slots times
every each jede jeden wochentlich weekly daily monthly repeat regelmassig : recurring repeats recurrence rule
block reserve reservier buchen buch book get : reserve book
room raum zimmer saal besprechungsraum : room meeting
erinner erinnerung erinnere remind nudge wake : reminder remind follow
see view zugriff einsehen access let allow darf : access share read permission
teilen freigeben freigabe give : share access grant
show zeig anzeigen display : show list return get
tomorrow today week morgen heute woche tonight : calendar events
ics : import icalendar
colleagues kollegen staff team coworker : colleagues employee team
channel kanal chat slack group : channel chat
private privat privately ping dm : private direct
people leute everybody everyone anyone anybody jemand someone wer somebody : person members people user contact employee
add hinzufugen join : add invite create append
mentioned mention said saying people gesagt talk conversation : messages conversations history
thumbs emoji like react smiley : reaction emoji react
top stick pin anheften : pin
status zeige : status
disturb stor ruhe quiet peace leave dnd : snooze notifications disturb mute silence
bug fehler problem defect broken kaputt : issue bug ticket error
repo repository repositorium codebase : repository repo source code
file melden report raise open : create open report
open offen remaining pending still waiting : open list issues
shut close schliessen fixed erledigt done fertig : close done complete resolve transition
pr propose proposal : pull request
main branch zweig : branch
merge zusammenfuhren land : merge
look check review prufen approve genehmigen : review approve requests
readme source file inhalt : file contents read
committed commit changes : commits
release ship version veroffentlichen launch : release version publish
ci build pipeline failed again retry rerun wiederhol : workflow run restart ci
ticket story task aufgabe : ticket
set setz stell schieb : set change update
progress arbeit : progress status transition
hand assign zuweisen ubergeben : assign
spent hours stunden worked gearbeitet : time spent work hours timesheet log
over wrap end beenden finish : close complete end finish
track fortschritt velocity plan : burndown progress velocity
points punkte effort aufwand estimate schatzen : estimate points
same connect duplicate verknupfen related doppelt twice double : link duplicate duplicates merge
find suche such such finden look where wo search liegt lookup : search find look
contract document dokument vertrag presentation prasentation report slides paper : file files document
cloud drive ablage : drive cloud storage file
folder ordner directory verzeichnis mappe : folder directory
edit bearbeiten : edit write writer access update
freelancer longer entziehen remove : revoke remove
link url address adresse : link url address
pdf : pdf document
deleted geloscht wrong undo back zuruck restore bring recover : restore bin trash revert refund return
yesterday gestern before earlier was fruher previous : earlier version revision history rollback previous
space platz left storage speicher full voll filling : storage space quota disk usage
call name rename nenn umbenennen : rename name
spreadsheet tabelle excel sheet table : spreadsheet sheet table range
cells zellen zelle : cell range values
bottom unten end : append last
sales verkauf umsatz revenue sell verkaufen verkaufe earn : sales revenue forecast deal
budget household : spreadsheet
diagram diagramm graph chart grafik balken plot kurve : chart
summarise summary zusammenfassen aggregate gruppieren : aggregates pivot summary
order sort sortier ordne newest alphabetical : sort order
multiply add calculate berechne rechne sum column : formula column
colour farbe rot red green highlight markier : highlight colour format condition
nobody lock schutz change sperr : protect lock
clean aufraumen : remove delete duplicates cleaning
know kennen kennt knows : find contact look employee
number phone telefon nummer handy : phone number contact
company firma unternehmen business kunde : company customer contact
customer kunde kunden client klient kundin buyer : customer contact
change andern aendern andere new neu : update change
chance opportunity lead licences deal auftrag : deal pipeline sales
won lost win gewonnen : won deal stage
expect erwarten likely prognose : forecast
spoke phone phoned telefoniert angerufen call gesprochen : call phone log
rep salesperson vertrieb seller : salesperson follow
offer angebot quote : quote offer
pay zahlen bezahlen paid geld money cash bezahlt euros dollars : payment pay invoice amount
bill invoice rechnung berechnen charge : invoice charge
unpaid overdue owe schulden : invoice overdue open status
money back refund erstatten erstatte ruckerstattung zuruck : refund
quit kundigen subscription abo abonnement monthly : subscription cancel end
premium upgrade tarif : plan upgrade
off discount rabatt percent prozent gutschein voucher code coupon : discount percentage code coupon sale
account konto balance kontostand guthaben : account balance
transfer uberweisung uberwiesen bank auszahlung : transfers bank payouts
reversed chargeback dispute reklamation ruckbuchung : chargebacks disputes raised
orders bestellung bestellungen purchase came : order orders
mind stop storno stornieren : cancel
went sent shipped verschickt versendet dhl ups out : shipped fulfil tracking
return zuruckschicken umtausch send : return
shop laden store online webshop : store shop product catalogue
put : create add
product artikel ware item : product catalogue
cheap cheaper gunstig gunstiger price preis teurer expensive cost kosten : price
stock bestand lager warehouse inventory : stock inventory warehouse
run out low knapp ausverkauft : stock low threshold
take hide ausblenden remove down : unpublish hide remove
label versandetikett : label shipping
parcel paket package sendung lieferung delivery : parcel shipment delivery tracking
where wo : track status search location
buyers think bewertung meinung rating review opinion : ratings reviews customer
computer rechner machine laptop disk platte festplatte pc locally : local disk file
txt notes text : file text
get rid loschen losch throw wegwerfen remove delete bin : delete trash remove
jpg png photos bilder : files pattern
contain contains enthalten word : contents search expression
zip pack packen compress : zip compress archive
unzip entpacken unpack auspacken : unpack archive extract
hard drive : disk space
different unterschied difference compare vergleich : differences compare diff
database datenbank db : database sql
ask : query request
many wie viele count how : query list
columns spalten fields : columns describe
slow long langsam slowest lange dauert : slow execution plan longest
backup sicherung back : backup
locking blocking blockiert shoot kill : session terminate blocks
biggest large gross grosste : size sizes
date schema migration upgrade : migrations schema
website webseite seite page site homepage internet : url page browser web
go open navigate offne besuch : open navigate
press druck klick button tap click : click element
form formular enter fill ausfullen : form fill input
picture photo bild foto screenshot image : image picture capture
down further scroll weiter : scroll
fetch download herunterladen runterladen : download
errors javascript console : console
running laufen lauft : list status
crash crashed absturz abgesturzt printed output : logs crash
copies instances replicas : replicas number scale
bounce restart neustart neu reboot : restart roll
broken wrong : rollback
inside within in : command exec
memory cpu ram : memory cpu usage
service out : unschedulable evict
nothing : mute silence
log logs protokoll : logs
fire alarm burning outage ausfall wrong : alerts firing
shut quiet stumm : mute silence
seen gesehen incident storung : acknowledge incident
tonight nacht bereitschaft shift schicht duty : call shift schedule
servers : service call
take over swap tausch ubernehmen : swap override shift
warn warning warnung notify alert alarm : alert threshold notify
exceptions ausnahmen : exceptions errors
up down erreichbar uptime : availability uptime endpoint
coordinates koordinaten lat : coordinates address
get komme weg route way bike fuss rad walk drive fahren : route directions cycling walking driving
long lange duration dauert traffic verkehr : duration traffic time
near nahe nahest around here nearby umgebung : nearby businesses places location
still : open
time uhr uhrzeit zeit clock : time zone
charge laden ladesaule aufladen electric : charging electric
park parken parkplatz parkhaus leave car : park parking car
tram bus bahn strassenbahn subway haltestelle stop abfahrt leave leaves : departures stop transit
visit stops best : stops route order
fly flight flug fliegen fliege airline airport flughafen : flight flights airport
late delayed verspatet verspatung punktlich : delay status
check einchecken : check boarding
seat sitz sitzplatz window aisle sit fenster : seat
sleep schlafen ubernachten hotel unterkunft accommodation stay nights nachte : accommodation hotel room
travel reise trip urlaub : travel booking trip
train zug zuge ice bahn trains : train connections
car auto wagen weekend mieten mietwagen rent hire : rental car
enter passport visa visum einreise pass : entry visa nationality
dollars euro currency wahrung umrechnen : currency amount convert
table eat essen restaurant italian tisch : restaurants tables
plan do days reiseplan : plan trip day itinerary
dark light licht lampe lights hell lamp : lamp light
on an einschalten anmachen : switch on
kill aus ausschalten ausmachen : switch off
cold warm hot heizung temperatur degrees grad heating heat kalt : temperature heating thermostat
kitchen bedroom wohnzimmer kuche schlafzimmer living bad : room
door tur haustur front : door lock
lock abschliessen zusperren : lock
burglar einbruch einbrecher leaving alarmanlage : burglar alarm
camera kamera : camera picture
blinds rollladen jalousie rollo shades curtains : shades blinds
hoover vacuum staubsaugen saugen sauger staub : cleaning robot vacuum
electricity strom energie energy verbrauch eats : power consumption energy
lawn rasen water giessen bewassern garten plants : irrigation garden water
music musik jazz song lied play spiel horen songs : play music track
loud laut leise louder volume : loudness volume
like love similar ahnlich recommend empfehlen else : similar suggest songs
voice recording aufnahme said transcribe type abtippen speech : recording speech transcribe
translate ubersetz french english german spanish englisch deutsch franzosisch language sprache : translate language
draw zeichne mal male paint : picture generate image
background hintergrund person only : cut background subject
receipt quittung beleg read scan lesen : text scan photo recognise
together zusammen one join : concatenate merge
video film clip : video
first seconds cut schneid : cut clip
holiday vacation urlaub ferien free frei urlaubstage : leave vacation holiday days time off
left ubrig remaining noch : remaining balance
flu sick krank ill illness grippe cold : illness absence sick
work arbeit : work worked
expenses spesen auslagen ausgaben : expense reimbursement claim
earn gehalt lohn salary verdien verdient pay : salary
job stelle hiring ad anzeige stellenanzeige looking : vacancy publish job
candidate bewerber applicant kandidat talk interview gesprach : candidate interview
boss manager chef vorgesetzter : reporting line employee
course kurs training schulung : course training
password passwort : secret password
write : write
spam : spam
"""


@lru_cache(maxsize=4096)
def stem_of(word: str) -> str:
    """A word without its ending: the same for `event` and `events`, not always a word."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            return word[: -len(ending)]
    return word


def synonyms_of(stem: str) -> frozenset[str]:
    """The stems of words with the same meaning.

    Args:
        stem: The stem of a word.
    """
    found = _SYNONYMS.get(stem)
    if found is None and len(stem) >= _COMPOUND:  # German puts words together
        parts = (word for word in _SYNONYMS if len(word) >= _PART and word in stem)
        found = frozenset[str]().union(*(_SYNONYMS[word] for word in parts))
    return found or frozenset()


def _read(groups: str) -> dict[str, frozenset[str]]:
    """Each line: words that people use, `:`, the words of tools that they stand for."""
    found: dict[str, set[str]] = {}
    for line in groups.split("\n"):
        said, _, meant = line.partition(":")
        for word in map(stem_of, said.split()):
            found.setdefault(word, set()).update(map(stem_of, meant.split()))
    return {word: frozenset(meant) for word, meant in found.items()}


_SYNONYMS: Final = _read(_GROUPS)
