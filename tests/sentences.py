"""A few sentences in many languages, written for the tests."""

ENGLISH = [
    "The old ferry leaves the harbour at seven, and it comes back with the evening tide.",
    "Most of the bread that we eat is made from wheat which was grown a few miles away.",
    "If you want to change the filter, turn off the pump first and wait for two minutes.",
    "Her report says that the bridge was closed because its cables had rusted.",
    "In what follows we show how the boundary layer of a thin wing behaves at high speed.",
]
OTHERS = {
    "German": [
        "Die alte Fähre verlässt den Hafen um sieben und kommt mit der Flut am Abend zurück.",
        "Das meiste Brot, das wir essen, wird aus Weizen gemacht, der nicht weit von hier wächst.",
        "Wenn du den Filter wechseln willst, stelle zuerst die Pumpe ab und warte zwei Minuten.",
    ],
    "French": [
        "Le vieux bac quitte le port à sept heures et revient le soir avec la marée.",
        "La plupart du pain que nous mangeons est fait avec du blé qui pousse près d'ici.",
        "Pour changer le filtre, il faut d'abord arrêter la pompe et attendre deux minutes.",
    ],
    "Spanish": [
        "El viejo transbordador sale del puerto a las siete y vuelve por la tarde con la marea.",
        "La mayor parte del pan que comemos se hace con trigo que crece muy cerca de aquí.",
        "Para cambiar el filtro hay que parar la bomba y esperar dos minutos.",
    ],
    "Italian": [
        "Il vecchio traghetto lascia il porto alle sette e torna la sera con la marea.",
        "La maggior parte del pane che mangiamo è fatta con il grano che cresce non lontano da qui.",
        "Per cambiare il filtro bisogna prima fermare la pompa e aspettare due minuti.",
    ],
    "Portuguese": [
        "A velha balsa deixa o porto às sete e volta à noite com a maré.",
        "A maior parte do pão que comemos é feita com trigo que não cresce muito longe daqui.",
        "Para mudar o filtro é preciso parar a bomba e esperar dois minutos, mas não mais.",
    ],
    "Dutch": [
        "De oude veerboot verlaat de haven om zeven uur en komt met het avondtij weer terug.",
        "Het meeste brood dat wij eten wordt gemaakt van tarwe die niet ver van hier groeit.",
        "Als je het filter wilt vervangen, zet dan eerst de pomp uit en wacht twee minuten.",
    ],
    "Swedish": [
        "Den gamla färjan lämnar hamnen klockan sju och kommer tillbaka med tidvattnet på kvällen.",
        "Det mesta av brödet som vi äter är gjort av vete som har vuxit nära här.",
        "Om du vill byta filter ska du först stänga av pumpen och vänta i två minuter.",
    ],
    "Polish": [
        "Stary prom opuszcza port o siódmej i wraca wieczorem, gdy jest przypływ.",
        "Chleb, który jemy, jest zwykle robiony z pszenicy, która nie rośnie daleko od nas.",
        "Aby wymienić filtr, trzeba najpierw wyłączyć pompę i poczekać dwie minuty.",
    ],
    "Turkish": [
        "Eski feribot saat yedide limandan ayrılır ve akşam gelgit ile geri döner.",
        "Yediğimiz ekmek çoğu zaman buradan çok uzak olmayan bir yerde yetişen buğdaydan yapılır.",
        "Filtreyi değiştirmek için önce pompayı durdurun ve iki dakika kadar bekleyin.",
    ],
    "Indonesian": [
        "Kapal tua itu meninggalkan pelabuhan pada pukul tujuh dan kembali dengan air pasang.",
        "Sebagian besar roti yang kami makan dibuat dari gandum yang tidak tumbuh jauh dari sini.",
        "Untuk mengganti saringan ini, matikan pompa lebih dulu dan tunggu dua menit.",
    ],
    "Finnish": [
        "Vanha lautta lähtee satamasta kello seitsemän ja palaa illalla, kun vesi on korkealla.",
        "Leipä, jota syömme, on tehty vehnästä, joka ei ole kasvanut kovin kaukana täältä.",
        "Jos haluat vaihtaa suodattimen, sammuta pumppu ja odota sen jälkeen kaksi minuuttia.",
    ],
    "Czech": [
        "Starý přívoz opouští přístav v sedm hodin a vrací se večer s přílivem.",
        "Chléb, který jíme, je většinou z pšenice, která roste nedaleko odtud.",
        "Když chcete vyměnit filtr, nejprve vypněte čerpadlo a počkejte dvě minuty.",
    ],
    "Chinese": [
        "旧渡轮七点离开港口，晚上随潮水回来。",
        "我们吃的面包大多是用附近种的小麦做的。",
        "更换滤网之前请先关闭水泵。",
    ],
    "Japanese": [
        "古いフェリーは七時に港を出て、夕方の潮で戻ってくる。",
        "フィルターを替える前にポンプを止めてください。",
    ],
    "Korean": ["낡은 연락선은 일곱 시에 항구를 떠나 저녁 밀물에 돌아온다.", "필터를 바꾸기 전에 펌프를 끄십시오."],
    "Russian": ["Старый паром уходит из порта в семь и возвращается вечером с приливом.", "Сначала выключите насос."],
    "Arabic": ["تغادر العبارة القديمة الميناء في السابعة وتعود في المساء مع المد.", "أوقف المضخة قبل تغيير المرشح."],
    "Greek": ["Το παλιό πλοίο φεύγει από το λιμάνι στις επτά και γυρίζει το βράδυ.", "Κλείστε πρώτα την αντλία."],
    "Hindi": ["पुरानी नाव सात बजे बंदरगाह से निकलती है और शाम को ज्वार के साथ लौटती है।", "पहले पंप बंद करें।"],
    "Thai": ["เรือข้ามฟากลำเก่าออกจากท่าเรือตอนเจ็ดโมงและกลับมาในตอนเย็น", "ปิดปั๊มก่อนเปลี่ยนไส้กรอง"],
}
